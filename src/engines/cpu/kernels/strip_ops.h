// The table of strip kernels: one line per operation of the language, then what is made of several.
#pragma once

#include "engines/cpu/kernels/strip_fused.h"
#include "engines/cpu/kernels/strip_lanes.h"
#include "engines/cpu/kernels/strip_line.h"
#include "engines/cpu/kernels/strip_loads.h"
#include "engines/cpu/kernels/strip_log.h"
#include "engines/cpu/kernels/strip_plain.h"
#include "engines/cpu/kernels/strip_tanh.h"
#include "engines/cpu/kernels/strip_trig.h"

namespace fovea::cpu::FOVEA_ISA::strip {
namespace {

using TableRow = StripKernel[strip_kind_count];

// Which kernels a row of the table has: one for every combination of vectors and splats but
// splats alone.
template <class F>
constexpr void fill1(TableRow& row) {
  row[0] = run1<F, 0>;
}
template <class F>
constexpr void fill2(TableRow& row) {
  row[0] = run2<F, 0>, row[1] = run2<F, 1>, row[2] = run2<F, 2>;
}
template <class F>
constexpr void fill3(TableRow& row) {
  row[0] = run3<F, 0>, row[1] = run3<F, 1>, row[2] = run3<F, 2>, row[3] = run3<F, 3>;
  row[4] = run3<F, 4>, row[5] = run3<F, 5>, row[6] = run3<F, 6>;
}
// i32 a < b ? x : y, one of a and b a splat: x and y anything.
template <class F>
constexpr void fill_select(TableRow& row) {
  row[1] = run4<F, 1>, row[5] = run4<F, 5>, row[9] = run4<F, 9>, row[13] = run4<F, 13>;
  row[2] = run4<F, 2>, row[6] = run4<F, 6>, row[10] = run4<F, 10>, row[14] = run4<F, 14>;
}

// The same for (i32 a < b) && x, x a vector.
template <class F>
constexpr void fill_and(TableRow& row) {
  row[1] = run3<F, 1>, row[2] = run3<F, 2>;
}

constexpr int at(StripOp op) { return static_cast<int>(op); }

constexpr void fill_plain(TableRow (&table)[strip_op_count]) {
#define FOVEA_ROW(arity, name) fill##arity<name>(table[at(StripOp::name)])
  FOVEA_ROW(2, AddF);
  FOVEA_ROW(2, SubF);
  FOVEA_ROW(2, MulF);
  FOVEA_ROW(2, DivF);
  FOVEA_ROW(2, AddI);
  FOVEA_ROW(2, SubI);
  FOVEA_ROW(2, MulI);
  FOVEA_ROW(2, FloorDiv);
  FOVEA_ROW(2, FloorMod);
  FOVEA_ROW(2, TruncDiv);
  FOVEA_ROW(2, TruncRem);
  FOVEA_ROW(1, NegF);
  FOVEA_ROW(1, NegI);
  FOVEA_ROW(1, AbsF);
  FOVEA_ROW(1, AbsI);
  FOVEA_ROW(1, SignF);
  FOVEA_ROW(2, MinF);
  FOVEA_ROW(2, MinI);
  FOVEA_ROW(2, MaxF);
  FOVEA_ROW(2, MaxI);
  FOVEA_ROW(3, ClampF);
  FOVEA_ROW(3, ClampI);
  FOVEA_ROW(1, Sqrt);
  FOVEA_ROW(1, Floor);
  FOVEA_ROW(1, Ceil);
  FOVEA_ROW(1, Round);
  FOVEA_ROW(2, LtF);
  FOVEA_ROW(2, LtI);
  FOVEA_ROW(2, LeF);
  FOVEA_ROW(2, LeI);
  FOVEA_ROW(2, EqF);
  FOVEA_ROW(2, EqI);
  FOVEA_ROW(2, EqB);
  FOVEA_ROW(2, NeF);
  FOVEA_ROW(2, NeI);
  FOVEA_ROW(2, NeB);
  FOVEA_ROW(2, And);
  FOVEA_ROW(2, Or);
  FOVEA_ROW(1, Not);
  FOVEA_ROW(3, SelectF);
  FOVEA_ROW(3, SelectI);
  FOVEA_ROW(3, SelectB);
  FOVEA_ROW(2, BitAnd);
  FOVEA_ROW(2, BitOr);
  FOVEA_ROW(2, BitXor);
  FOVEA_ROW(1, BitNot);
  FOVEA_ROW(2, Shl);
  FOVEA_ROW(2, Shr);
  FOVEA_ROW(1, FloatOfInt);
  FOVEA_ROW(1, FloatOfBool);
  FOVEA_ROW(1, IntOfFloat);
  FOVEA_ROW(1, IntOfBool);
  FOVEA_ROW(1, BoolOfFloat);
  FOVEA_ROW(1, BoolOfInt);
#undef FOVEA_ROW
  // A divisor that is the same for a row is looked at once.
  table[at(StripOp::FloorDiv)][2] = divide_by_splat<FloorDiv, true>;
  table[at(StripOp::FloorMod)][2] = divide_by_splat<FloorMod, false>;
  table[at(StripOp::Copy)][0] = run1<Copy, 0>;
  table[at(StripOp::Copy)][1] = run1<Copy, 1>;
  table[at(StripOp::Line)][2] = line<false>;
  table[at(StripOp::LineToFloat)][2] = line<true>;
  fill_select<SelectLess>(table[at(StripOp::SelectLess)]);
  fill_select<SelectLessEqual>(table[at(StripOp::SelectLessEqual)]);
  fill_select<SelectEqual>(table[at(StripOp::SelectEqual)]);
  fill_and<AndLess>(table[at(StripOp::AndLess)]);
  fill_and<AndLessEqual>(table[at(StripOp::AndLessEqual)]);
  fill_and<AndEqual>(table[at(StripOp::AndEqual)]);
}

// Functions of one operand that take many instructions. Tanh has fast forms of its own.
#define FOVEA_FUNCTIONS(ROW)                                                                  \
  ROW(Exp), ROW(Exp2), ROW(Expm1), ROW(Log), ROW(Log2), ROW(Log1p), ROW(Rsqrt), ROW(Sigmoid), \
      ROW(Softplus), ROW(Erf), ROW(Sin), ROW(Cos), ROW(Tan)

constexpr void fill_exact(TableRow (&table)[strip_op_count]) {
#define FOVEA_ROW(name) fill1<PerLane<Lane##name>>(table[at(StripOp::name)])
  FOVEA_FUNCTIONS(FOVEA_ROW), FOVEA_ROW(Tanh);
#undef FOVEA_ROW
  fill2<PerLanePow>(table[at(StripOp::Pow)]);
}

constexpr void fill_fast(TableRow (&table)[strip_op_count]) {
#define FOVEA_ROW(name) fill1<name>(table[at(StripOp::name)])
  FOVEA_FUNCTIONS(FOVEA_ROW);
#undef FOVEA_ROW
#undef FOVEA_FUNCTIONS
  table[at(StripOp::Tanh)][0] = tanh_strip;
  table[at(StripOp::TanhOfQuotient)][2] = tanh_of_quotient<false>;
  table[at(StripOp::SoftCap)][6] = tanh_of_quotient<true>;
  fill2<PerLanePow>(table[at(StripOp::Pow)]);
  table[at(StripOp::Pow)][2] = power_by_splat;
  table[at(StripOp::DivF)][2] = quotient_by_splat;
  fill3<MulAdd>(table[at(StripOp::MulAdd)]);
  fill3<MulSub>(table[at(StripOp::MulSub)]);
  fill3<NegMulAdd>(table[at(StripOp::NegMulAdd)]);
  // Operands a, b, u, v: the last two are splats.
  table[at(StripOp::MulMulDiv)][12] = scaled_product<PlainProduct>;
  table[at(StripOp::MulTanhSlope)][12] = scaled_product<TanhSlopeProduct>;
  table[at(StripOp::AddLine)][10] = add_line<false, false>;
  table[at(StripOp::AddAbsLine)][10] = add_line<false, true>;
  table[at(StripOp::SubLine)][10] = add_line<true, false>;
  table[at(StripOp::SubAbsLine)][10] = add_line<true, true>;
}

constexpr StripKernels make_strip_kernels() {
  StripKernels out{};
  fill_plain(out.fast);
  fill_plain(out.exact);
  fill_fast(out.fast);
  fill_exact(out.exact);
  fill_loads(out);
  return out;
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_ISA::strip

namespace fovea::cpu::FOVEA_ISA {
namespace {

constexpr StripKernels strip_kernels = strip::make_strip_kernels();

}  // namespace
}  // namespace fovea::cpu::FOVEA_ISA

// The table of strip kernels: one line per operation of the language, then those that fuse several.
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
template <class F, int kinds = 0>
constexpr void fill(TableRow& row) {
  row[kinds] = kernel_of<F, kinds>();
  if constexpr (kinds + 2 < 1 << arity<F>) fill<F, kinds + 1>(row);
}
// The same if the operation begins with an i32 comparison, of a vector with a splat. The other
// operands are anything (select), or vectors (and).
template <class F, int kinds_count, int kinds = 1>
constexpr void fill_compare(TableRow& row) {
  if constexpr ((kinds & 1) != (kinds >> 1 & 1)) row[kinds] = kernel_of<F, kinds>();
  if constexpr (kinds + 1 < kinds_count) fill_compare<F, kinds_count, kinds + 1>(row);
}

constexpr int at(StripOp op) { return static_cast<int>(op); }

// Operations of a few instructions, in both tables.
#define FOVEA_PLAIN(ROW)                                                                           \
  ROW(AddF), ROW(SubF), ROW(MulF), ROW(DivF), ROW(AddI), ROW(SubI), ROW(MulI), ROW(FloorDiv),      \
      ROW(FloorMod), ROW(TruncDiv), ROW(TruncRem), ROW(NegF), ROW(NegI), ROW(AbsF), ROW(AbsI),     \
      ROW(SignF), ROW(MinF), ROW(MinI), ROW(MaxF), ROW(MaxI), ROW(ClampF), ROW(ClampI), ROW(Sqrt), \
      ROW(Floor), ROW(Ceil), ROW(Round), ROW(LtF), ROW(LtI), ROW(LeF), ROW(LeI), ROW(EqF),         \
      ROW(EqI), ROW(EqB), ROW(NeF), ROW(NeI), ROW(NeB), ROW(And), ROW(Or), ROW(Not), ROW(SelectF), \
      ROW(SelectI), ROW(SelectB), ROW(BitAnd), ROW(BitOr), ROW(BitXor), ROW(BitNot), ROW(Shl),     \
      ROW(Shr), ROW(FloatOfInt), ROW(FloatOfBool), ROW(IntOfFloat), ROW(IntOfBool),                \
      ROW(BoolOfFloat), ROW(BoolOfInt)

constexpr void fill_plain(TableRow (&table)[strip_op_count]) {
#define FOVEA_ROW(name) fill<name>(table[at(StripOp::name)])
  FOVEA_PLAIN(FOVEA_ROW);
#undef FOVEA_ROW
  // A divisor that is the same for a row is looked at once.
  table[at(StripOp::FloorDiv)][2] = divide_by_splat<FloorDiv, true>;
  table[at(StripOp::FloorMod)][2] = divide_by_splat<FloorMod, false>;
  table[at(StripOp::Copy)][0] = kernel_of<Copy, 0>();
  table[at(StripOp::Copy)][1] = kernel_of<Copy, 1>();
  table[at(StripOp::Line)][2] = line<false>;
  table[at(StripOp::LineToFloat)][2] = line<true>;
  fill_compare<SelectLess, 16>(table[at(StripOp::SelectLess)]);
  fill_compare<SelectLessEqual, 16>(table[at(StripOp::SelectLessEqual)]);
  fill_compare<SelectEqual, 16>(table[at(StripOp::SelectEqual)]);
  fill_compare<AndLess, 4>(table[at(StripOp::AndLess)]);
  fill_compare<AndLessEqual, 4>(table[at(StripOp::AndLessEqual)]);
  fill_compare<AndEqual, 4>(table[at(StripOp::AndEqual)]);
}

// Functions of one operand that take many instructions.
#define FOVEA_FUNCTIONS(ROW)                                                               \
  ROW(Exp), ROW(Exp2), ROW(Expm1), ROW(Log), ROW(Log2), ROW(Log1p), ROW(Rsqrt), ROW(Tanh), \
      ROW(Sigmoid), ROW(Softplus), ROW(Erf), ROW(Sin), ROW(Cos), ROW(Tan)

constexpr void fill_exact(TableRow (&table)[strip_op_count]) {
#define FOVEA_ROW(name) fill<PerLane<Lane##name>>(table[at(StripOp::name)])
  FOVEA_FUNCTIONS(FOVEA_ROW);
#undef FOVEA_ROW
  fill<PerLanePow>(table[at(StripOp::Pow)]);
}

constexpr void fill_fast(TableRow (&table)[strip_op_count]) {
#define FOVEA_ROW(name) fill<name>(table[at(StripOp::name)])
  FOVEA_FUNCTIONS(FOVEA_ROW);
#undef FOVEA_ROW
#undef FOVEA_FUNCTIONS
  table[at(StripOp::TanhOfQuotient)][2] = tanh_of_quotient<false>;
  table[at(StripOp::SoftCap)][6] = tanh_of_quotient<true>;
  fill<PerLanePow>(table[at(StripOp::Pow)]);
  table[at(StripOp::Pow)][2] = power_by_splat;
  table[at(StripOp::DivF)][2] = quotient_by_splat;
  fill<MulAdd>(table[at(StripOp::MulAdd)]);
  fill<MulSub>(table[at(StripOp::MulSub)]);
  fill<NegMulAdd>(table[at(StripOp::NegMulAdd)]);
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

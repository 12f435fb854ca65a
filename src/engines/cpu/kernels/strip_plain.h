// Every operation that takes a few instructions, on one vector: IEEE rules for f32, wrapping
// integers, bools as 0 and -1. All of these are exact.
#pragma once

#include "engines/cpu/kernels/strip_int.h"
#include "engines/cpu/kernels/strip_log.h"
#include "engines/cpu/kernels/strip_pack.h"
#include "engines/cpu/kernels/strip_tanh.h"
#include "engines/cpu/kernels/strip_trig.h"

namespace fovea::cpu::FOVEA_ISA::strip {
namespace {

FOVEA_INLINE vf cell(vf x) { return x; }
FOVEA_INLINE vf cell(vi x) { return as_float(x); }
FOVEA_INLINE vf cell(vu x) { return reinterpret_cast<vf>(x); }

// `value` is written in terms of the operands x, y, z as f32, and i, j, l as i32.
#define FOVEA_OF1(Name, value)                                   \
  struct Name {                                                  \
    FOVEA_INLINE Pack of(Pack p) {                               \
      const auto one = [](vf x) __attribute__((always_inline)) { \
        [[maybe_unused]] const vi i = as_int(x);                 \
        return cell(value);                                      \
      };                                                         \
      return each(one, p);                                       \
    }                                                            \
  }
#define FOVEA_OF2(Name, value)                                         \
  struct Name {                                                        \
    FOVEA_INLINE Pack of(Pack p, Pack q) {                             \
      const auto one = [](vf x, vf y) __attribute__((always_inline)) { \
        [[maybe_unused]] const vi i = as_int(x), j = as_int(y);        \
        return cell(value);                                            \
      };                                                               \
      return each(one, p, q);                                          \
    }                                                                  \
  }
#define FOVEA_OF3(Name, value)                                                 \
  struct Name {                                                                \
    FOVEA_INLINE Pack of(Pack p, Pack q, Pack r) {                             \
      const auto one = [](vf x, vf y, vf z) __attribute__((always_inline)) {   \
        [[maybe_unused]] const vi i = as_int(x), j = as_int(y), l = as_int(z); \
        return cell(value);                                                    \
      };                                                                       \
      return each(one, p, q, r);                                               \
    }                                                                          \
  }

// NaN in either gives NaN; of equal operands, which may be zeros of either sign, -0 is the lesser.
// The raw functions give their second operand if one is NaN.
FOVEA_INLINE vf minimum(vf a, vf b) {
  const vf less = a == b ? as_float(as_int(a) | as_int(b)) : min_raw(a, b);
  return a != a ? a : b != b ? b : less;
}
FOVEA_INLINE vf maximum(vf a, vf b) {
  const vf more = a == b ? as_float(as_int(a) & as_int(b)) : max_raw(a, b);
  return a != a ? a : b != b ? b : more;
}

FOVEA_OF1(Copy, x);
FOVEA_OF2(AddF, x + y);
FOVEA_OF2(SubF, x - y);
FOVEA_OF2(MulF, x* y);
FOVEA_OF2(DivF, x / y);
FOVEA_OF2(AddI, bits(i) + bits(j));
FOVEA_OF2(SubI, bits(i) - bits(j));
FOVEA_OF2(MulI, bits(i) * bits(j));
FOVEA_OF2(FloorDiv, floor_div(i, j));
FOVEA_OF2(FloorMod, floor_mod(i, j));
FOVEA_OF2(TruncDiv, trunc_div(i, j));
FOVEA_OF2(TruncRem, trunc_rem(i, j));
FOVEA_OF1(NegF, i ^ INT32_MIN);
FOVEA_OF1(NegI, vu{} - bits(i));
FOVEA_OF1(AbsF, i& INT32_MAX);
FOVEA_OF1(AbsI, i < 0 ? wrap(vu{} - bits(i)) : i);
FOVEA_OF1(SignF, x > 0.0f ? splat(1.0f) : x < 0.0f ? splat(-1.0f) : x);
FOVEA_OF2(MinF, minimum(x, y));
FOVEA_OF2(MinI, i < j ? i : j);
FOVEA_OF2(MaxF, maximum(x, y));
FOVEA_OF2(MaxI, i < j ? j : i);
FOVEA_OF3(ClampF, minimum(maximum(x, y), z));
FOVEA_INLINE vi lesser(vi a, vi b) { return a < b ? a : b; }
FOVEA_OF3(ClampI, lesser(i < j ? j : i, l));
FOVEA_OF1(Sqrt, sqrt_of(x));
FOVEA_OF1(Floor, floor_of(x));
FOVEA_OF1(Ceil, ceil_of(x));
FOVEA_OF1(Round, round_even(x));
FOVEA_OF2(LtF, x < y);
FOVEA_OF2(LtI, i < j);
FOVEA_OF2(LeF, x <= y);
FOVEA_OF2(LeI, i <= j);
FOVEA_OF2(EqF, x == y);
FOVEA_OF2(EqI, i == j);
using EqB = EqI;  // the same cells
FOVEA_OF2(NeF, x != y);
FOVEA_OF2(NeI, i != j);
using NeB = NeI;
FOVEA_OF2(And, i& j);
FOVEA_OF2(Or, i | j);
FOVEA_OF1(Not, ~i);
FOVEA_OF3(SelectF, i < 0 ? y : z);
using SelectI = SelectF;
using SelectB = SelectF;
using BitAnd = And;
using BitOr = Or;
FOVEA_OF2(BitXor, i ^ j);
using BitNot = Not;
FOVEA_OF2(Shl, bits(i) << bits(j & 31));
FOVEA_OF2(Shr, i >> (j & 31));
FOVEA_OF1(FloatOfInt, to_float(i));
FOVEA_OF1(FloatOfBool, i& as_int(splat(1.0f)));
FOVEA_OF1(IntOfFloat, to_int(x));
FOVEA_OF1(IntOfBool, i & 1);
FOVEA_OF1(BoolOfFloat, x != 0.0f);
FOVEA_OF1(BoolOfInt, i != 0);

#if FOVEA_ISA_LEVEL >= 2
FOVEA_INLINE vf rsqrt_of(vf x) {
  const vf y = (vf)_mm512_rsqrt14_ps((__m512)x);
  const vf error = fma(-(x * y), y, splat(1.0f));
  const vf better = fma(y * error, splat(0.5f), y);
  const vi end = (x == 0.0f) | (x == __builtin_inff());
  return end ? y : better;
}
#else
FOVEA_INLINE vf rsqrt_of(vf x) { return splat(1.0f) / sqrt_of(x); }
#endif
FOVEA_OF1(Rsqrt, rsqrt_of(x));

// Those that advance four vectors together.
#define FOVEA_OF_PACK(Name, function)                    \
  struct Name {                                          \
    FOVEA_INLINE Pack of(Pack x) { return function(x); } \
  }
FOVEA_OF_PACK(Exp, exp_of);
FOVEA_OF_PACK(Exp2, exp2_of);
FOVEA_OF_PACK(Expm1, expm1_of);
FOVEA_OF_PACK(Log, log_of);
FOVEA_OF_PACK(Log2, log2_of);
FOVEA_OF_PACK(Log1p, log1p_of);
FOVEA_OF_PACK(Tanh, tanh_of);
FOVEA_OF_PACK(Sigmoid, sigmoid_of);
FOVEA_OF_PACK(Softplus, softplus_of);
FOVEA_OF_PACK(Erf, erf_of);

}  // namespace
}  // namespace fovea::cpu::FOVEA_ISA::strip

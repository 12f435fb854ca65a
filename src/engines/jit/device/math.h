// What formulas compute with: one function for each operation of the language that C++ has no
// operator for. Integers and `exact` follow src/ir/arith.h bit by bit: decisions are made with
// them. `precise` is within a few units in the last place; `fast` uses the special function unit,
// for results that meet 16-bit tensors. None turns an infinity into a NaN where the function has a
// limit there.
//
// Functions of the C library are called with :: before them: NVRTC knows them without a header.
#pragma once

#include "primitives.h"

namespace fovea::device {

namespace arith {

// --- i32: wraps ---
FOVEA_DEVICE int wrap(unsigned x) { return static_cast<int>(x); }
FOVEA_DEVICE int add(int a, int b) {
  return wrap(static_cast<unsigned>(a) + static_cast<unsigned>(b));
}
FOVEA_DEVICE int subtract(int a, int b) {
  return wrap(static_cast<unsigned>(a) - static_cast<unsigned>(b));
}
FOVEA_DEVICE int multiply(int a, int b) {
  return wrap(static_cast<unsigned>(a) * static_cast<unsigned>(b));
}
FOVEA_DEVICE int negate(int a) { return subtract(0, a); }
FOVEA_DEVICE int absolute(int a) { return a < 0 ? negate(a) : a; }
FOVEA_DEVICE int shift_left(int a, int b) { return wrap(static_cast<unsigned>(a) << (b & 31)); }
FOVEA_DEVICE int shift_right(int a, int b) { return a >> (b & 31); }
FOVEA_DEVICE int minimum(int a, int b) { return a < b ? a : b; }
FOVEA_DEVICE int maximum(int a, int b) { return a < b ? b : a; }
FOVEA_DEVICE int clamp(int x, int lo, int hi) { return minimum(maximum(x, lo), hi); }

FOVEA_DEVICE int trunc_div(int a, int b) {
  if (b == 0) return 0;
  if (b == -1) return negate(a);  // INT_MIN / -1 wraps
  return a / b;
}
FOVEA_DEVICE int trunc_rem(int a, int b) { return b == 0 || b == -1 ? 0 : a % b; }
FOVEA_DEVICE int floor_div(int a, int b) {
  const int quotient = trunc_div(a, b);
  return trunc_rem(a, b) != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}
FOVEA_DEVICE int floor_mod(int a, int b) {
  const int rest = trunc_rem(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// NaN gives 0; out of range saturates; otherwise towards zero.
FOVEA_DEVICE int to_int(float x) {
  if (x != x) return 0;
  if (x >= 2147483648.0f) return 2147483647;
  if (x < -2147483648.0f) return -2147483647 - 1;
  return static_cast<int>(x);
}

// --- f32: the same whether something is decided or not ---
FOVEA_DEVICE float nan_value() { return float_of_bits(0x7fc00000u); }
FOVEA_DEVICE bool sign_bit(float x) { return (bits_of(x) >> 31) != 0; }
FOVEA_DEVICE float absolute(float x) { return float_of_bits(bits_of(x) & 0x7fffffffu); }

// NaN in either operand gives NaN, and -0 is less than +0.
FOVEA_DEVICE float minimum(float a, float b) {
  if (a != a || b != b) return nan_value();
  if (a == b) return sign_bit(a) ? a : b;
  return a < b ? a : b;
}
FOVEA_DEVICE float maximum(float a, float b) {
  if (a != a || b != b) return nan_value();
  if (a == b) return sign_bit(a) ? b : a;
  return a < b ? b : a;
}
FOVEA_DEVICE float clamp(float x, float lo, float hi) { return minimum(maximum(x, lo), hi); }
FOVEA_DEVICE float sign(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x; }
FOVEA_DEVICE float floor_of(float x) { return ::floorf(x); }
FOVEA_DEVICE float ceil_of(float x) { return ::ceilf(x); }
FOVEA_DEVICE float round_of(float x) { return ::rintf(x); }  // half to even

}  // namespace arith

// --- f32 that decides: in double, rounded once ---
namespace exact {

FOVEA_DEVICE float exp(float x) { return static_cast<float>(::exp(static_cast<double>(x))); }
FOVEA_DEVICE float exp2(float x) { return static_cast<float>(::exp2(static_cast<double>(x))); }
FOVEA_DEVICE float expm1(float x) { return static_cast<float>(::expm1(static_cast<double>(x))); }
FOVEA_DEVICE float log(float x) { return static_cast<float>(::log(static_cast<double>(x))); }
FOVEA_DEVICE float log2(float x) { return static_cast<float>(::log2(static_cast<double>(x))); }
FOVEA_DEVICE float log1p(float x) { return static_cast<float>(::log1p(static_cast<double>(x))); }
FOVEA_DEVICE float sqrt(float x) { return static_cast<float>(::sqrt(static_cast<double>(x))); }
FOVEA_DEVICE float rsqrt(float x) { return static_cast<float>(1 / ::sqrt(static_cast<double>(x))); }
FOVEA_DEVICE float tanh(float x) { return static_cast<float>(::tanh(static_cast<double>(x))); }
FOVEA_DEVICE float sigmoid(float x) {
  return static_cast<float>(1 / (1 + ::exp(-static_cast<double>(x))));
}
FOVEA_DEVICE float softplus(float x) {
  const double y = static_cast<double>(x);
  return static_cast<float>(y > 20 ? y : ::log1p(::exp(y)));
}
FOVEA_DEVICE float erf(float x) { return static_cast<float>(::erf(static_cast<double>(x))); }
FOVEA_DEVICE float sin(float x) { return static_cast<float>(::sin(static_cast<double>(x))); }
FOVEA_DEVICE float cos(float x) { return static_cast<float>(::cos(static_cast<double>(x))); }
FOVEA_DEVICE float tan(float x) { return static_cast<float>(::tan(static_cast<double>(x))); }
FOVEA_DEVICE float power(float x, float y) {
  if (y == 2) return mul_rn(x, x);
  if (y == 1) return x;
  if (y == -1) return div_rn(1, x);
  return static_cast<float>(::pow(static_cast<double>(x), static_cast<double>(y)));
}

}  // namespace exact

// --- f32 that decides nothing ---
namespace precise {

FOVEA_DEVICE float divide(float a, float b) { return a / b; }
// To be multiplied by instead of dividing. That of a subnormal number stays finite, so that 0 / x
// is 0.
FOVEA_DEVICE float reciprocal(float x) {
  const float y = 1 / x;
  return x != 0 && arith::absolute(y) == infinity() ? (x < 0 ? -3.40282347e+38f : 3.40282347e+38f)
                                                    : y;
}
FOVEA_DEVICE float exp(float x) { return ::expf(x); }
FOVEA_DEVICE float exp2(float x) { return ::exp2f(x); }
FOVEA_DEVICE float expm1(float x) { return ::expm1f(x); }
FOVEA_DEVICE float log(float x) { return ::logf(x); }
FOVEA_DEVICE float log2(float x) { return ::log2f(x); }
FOVEA_DEVICE float log1p(float x) { return ::log1pf(x); }
FOVEA_DEVICE float sqrt(float x) { return ::sqrtf(x); }
FOVEA_DEVICE float rsqrt(float x) { return 1 / ::sqrtf(x); }
FOVEA_DEVICE float tanh(float x) { return ::tanhf(x); }
FOVEA_DEVICE float sigmoid(float x) { return 1 / (1 + ::expf(-x)); }
FOVEA_DEVICE float softplus(float x) { return x > 20 ? x : ::log1pf(::expf(x)); }
FOVEA_DEVICE float erf(float x) { return ::erff(x); }
FOVEA_DEVICE float sin(float x) { return ::sinf(x); }
FOVEA_DEVICE float cos(float x) { return ::cosf(x); }
FOVEA_DEVICE float tan(float x) { return ::tanf(x); }
FOVEA_DEVICE float power(float x, float y) {
  if (y == 2) return x * x;
  if (y == 1) return x;
  if (y == -1) return 1 / x;
  return ::powf(x, y);
}

}  // namespace precise

namespace fast {

// A divisor beyond 2^126 gives 0, as its reciprocal is no normal number.
FOVEA_DEVICE float divide(float a, float b) { return a * reciprocal_approx(b); }
FOVEA_DEVICE float exp2(float x) { return exp2_approx(x); }
FOVEA_DEVICE float exp(float x) { return exp2_approx(x * 1.44269504f); }
FOVEA_DEVICE float expm1(float x) { return ::expm1f(x); }
FOVEA_DEVICE float log2(float x) {
  return ::log2f(x);
}  // that of the special function unit has no digits near 1
FOVEA_DEVICE float log(float x) { return ::logf(x); }
FOVEA_DEVICE float log1p(float x) { return ::log1pf(x); }
FOVEA_DEVICE float sqrt(float x) { return ::sqrtf(x); }
FOVEA_DEVICE float rsqrt(float x) { return precise::rsqrt(x); }
// 1 - 2 / (e^2x + 1) is off by 1e-7: near 0, where that is much, by the series. Of |x|, so that it
// ends in 1 and -1 exactly.
FOVEA_DEVICE float tanh(float x) {
  const float y = x * x;
  const float inner = fma_rn(fma_rn(y, -0.0539682540f, 0.133333333f), y, -0.333333333f);
  const float near = x * fma_rn(inner, y, 1.0f);
  const float e = exp2_approx(arith::absolute(x) * 2.88539008f);
  const float far = fma_rn(-2.0f, reciprocal_approx(e + 1), 1.0f);
  const unsigned sign = bits_of(x) & 0x80000000u;
  return y < 0.0625f ? near : float_of_bits((bits_of(far) & 0x7fffffffu) | sign);
}
FOVEA_DEVICE float sigmoid(float x) { return reciprocal_approx(1 + exp2_approx(x * -1.44269504f)); }
FOVEA_DEVICE float softplus(float x) { return x > 20 ? x : ::log1pf(exp(x)); }
FOVEA_DEVICE float erf(float x) { return ::erff(x); }
FOVEA_DEVICE float sin(float x) { return ::sinf(x); }
FOVEA_DEVICE float cos(float x) { return ::cosf(x); }
FOVEA_DEVICE float tan(float x) { return ::tanf(x); }
FOVEA_DEVICE float power(float x, float y) { return precise::power(x, y); }

}  // namespace fast

// As exact as tanh_approx, so not near 0: one unit of work instead of two.
FOVEA_DEVICE float sigmoid_approx(float x) { return fma_rn(tanh_approx(0.5f * x), 0.5f, 0.5f); }

}  // namespace fovea::device

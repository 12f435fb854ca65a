// exp, exp2, expm1 and functions made of them, on packs: within about 2 ulp, and right for NaN,
// infinities, zeros and subnormal results.
#pragma once

#include "engines/cpu/kernels/strip_pack.h"

namespace fovea::cpu::FOVEA_ISA::strip {
namespace {

// Adding it rounds to a whole number, whose low bits are then those of the sum.
constexpr float whole = 12582912.0f;  // 1.5 * 2^23
constexpr float log2_e = 1.44269504088896341f;
constexpr float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;  // the first has few bits

FOVEA_INLINE Pack between(Pack x, float low, float high) {  // a NaN stays
  return max_raw(low, min_raw(high, x));
}

#if FOVEA_ISA_LEVEL >= 2
FOVEA_INLINE vf scale_by_power(vf x, vf n) { return (vf)_mm512_scalef_ps((__m512)x, (__m512)n); }
#else
FOVEA_INLINE vf power_of_two(vi n) { return as_float(wrap((bits(n) + 127u) << 23)); }
// In two steps: 2^n alone may be too large or too small.
FOVEA_INLINE vf scale_by_power(vf x, vf n) {
  const vi i = wrap(bits(as_int(n + whole)) - bits(as_int(splat(whole))));
  const vi half = i >> 1;
  return x * power_of_two(half) * power_of_two(i - half);
}
#endif
// x 2^n, n whole and at most 300 or so in magnitude.
FOVEA_INLINE Pack scale_by_power(Pack x, Pack n) {
  return {scale_by_power(x.a, n.a), scale_by_power(x.b, n.b), scale_by_power(x.c, n.c),
          scale_by_power(x.d, n.d)};
}

struct Reduced {
  Pack n, r;  // x = n ln 2 + r
};
FOVEA_INLINE Reduced reduce_exp(Pack x) {
  const Pack n = fma(x, log2_e, whole) - whole;
  return {n, fma(n, -ln2_low, fma(n, -ln2_high, x))};
}

// (e^r - 1 - r) / r^2 for |r| <= ln 2 / 2
FOVEA_INLINE Pack exp_tail(Pack r) {
  Pack p = fma(r, 1.9875691500e-4f, 1.3981999507e-3f);
  p = horner(p, r, 8.3334519073e-3f);
  p = horner(p, r, 4.1665795894e-2f);
  p = horner(p, r, 1.6666665459e-1f);
  return horner(p, r, 5.0000001201e-1f);
}

FOVEA_INLINE Pack exp_of(Pack x) {
  const Reduced e = reduce_exp(between(x, -105.0f, 90.0f));
  return scale_by_power(fma(e.r * e.r, exp_tail(e.r), e.r) + 1.0f, e.n);
}

FOVEA_INLINE Pack exp2_of(Pack x) {
  x = between(x, -152.0f, 130.0f);
  const Pack n = (x + whole) - whole;
  const Pack r = x - n;
  Pack p = fma(r, 1.535336188319500e-4f, 1.339887440266574e-3f);
  p = horner(p, r, 9.618437357674640e-3f);
  p = horner(p, r, 5.550332471162809e-2f);
  p = horner(p, r, 2.402264791363012e-1f);
  p = horner(p, r, 6.931472028550421e-1f);
  return scale_by_power(horner(p, r, 1.0f), n);
}

// 2^n (e^r - 1) + (2^n - 1), halved until the end so that 2^128 does not overflow too early.
FOVEA_INLINE Pack expm1_of(Pack x) {
  const Pack clamped = between(x, -40.0f, 89.0f);
  const Reduced e = reduce_exp(clamped);
  const Pack small = fma(e.r * e.r, exp_tail(e.r), e.r);
  const Pack half = scale_by_power(all(0.5f), e.n);
  const Pack sum = fma(small, half, half - 0.5f);
  const Pack out = sum + sum;
  // If nothing was scaled the sum is e^r - 1 itself; that keeps the sign of zero, too.
  return each([](vf y, vf s, vf n, vf v) { return n == 0.0f ? (v == 0.0f ? v : s) : y; }, out,
              small, e.n, clamped);
}

#if FOVEA_ISA_LEVEL >= 2
// 1 / x to within an ulp, for normal x whose inverse is normal.
FOVEA_INLINE Pack inverse(Pack x) {
  const auto one = [](vf v) __attribute__((always_inline)) {
    const vf y = (vf)_mm512_rcp14_ps((__m512)v);
    return fma(y, fma(-v, y, splat(1.0f)), y);
  };
  return each(one, x);
}
#else
FOVEA_INLINE Pack inverse(Pack x) { return 1.0f / x; }
#endif

// 1 / (1 + e^-|x|), and for x < 0 that times e^-|x|: no digits are lost on either side.
FOVEA_INLINE Pack sigmoid_of(Pack x) {
  const Pack e = exp_of(all(0.0f) - absolute(x));
  const Pack right = inverse(e + 1.0f);
  return each([](vf v, vf r, vf s) { return v < 0.0f ? r * s : r; }, x, right, e);
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_ISA::strip

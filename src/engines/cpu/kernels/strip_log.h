// Logarithms on packs: within about 2 ulp, also near 1, and right for 0, negative numbers,
// subnormal ones, infinity and NaN.
#pragma once

#include "engines/cpu/kernels/strip_exp.h"

namespace fovea::cpu::FOVEA_ISA::strip {
namespace {

// x = (1 + f) 2^e with 1 + f between sqrt(1/2) and sqrt(2), for positive x.
FOVEA_INLINE void split(vf x, vf& f, vf& e) {
  const vi tiny = x < 1.17549435e-38f;
  const vf normal = tiny ? x * 8388608.0f : x;  // 2^23
  const vi shift = wrap(bits(as_int(normal)) - 0x3f3504f3u) >> 23;
  f = as_float(wrap(bits(as_int(normal)) - (bits(shift) << 23))) - 1.0f;
  e = to_float(shift - (tiny & 23));
}
FOVEA_INLINE void split(Pack x, Pack& f, Pack& e) {
  split(x.a, f.a, e.a);
  split(x.b, f.b, e.b);
  split(x.c, f.c, e.c);
  split(x.d, f.d, e.d);
}

// log(1 + f) - f + f^2 / 2
FOVEA_INLINE Pack log_tail(Pack f, Pack square) {
  Pack p = fma(f, 7.0376836292e-2f, -1.1514610310e-1f);
  p = horner(p, f, 1.1676998740e-1f);
  p = horner(p, f, -1.2420140846e-1f);
  p = horner(p, f, 1.4249322787e-1f);
  p = horner(p, f, -1.6668057665e-1f);
  p = horner(p, f, 2.0000714765e-1f);
  p = horner(p, f, -2.4999993993e-1f);
  p = horner(p, f, 3.3333331174e-1f);
  return p * (f * square);
}

// Puts the ends right: 0, negative, infinite, NaN.
FOVEA_INLINE vf log_ends(vf x, vf inside) {
  const vf infinity = splat(__builtin_inff());
  const vf below = x == 0.0f ? -infinity : splat(__builtin_nanf(""));
  const vf end = x > 0.0f ? x : below;
  const vi ordinary = (x > 0.0f) & (x < infinity);
  return ordinary ? inside : end;
}
FOVEA_INLINE Pack log_ends(Pack x, Pack y) {
  return {log_ends(x.a, y.a), log_ends(x.b, y.b), log_ends(x.c, y.c), log_ends(x.d, y.d)};
}

FOVEA_INLINE Pack log_of(Pack x) {
  Pack f, e;
  split(x, f, e);
  const Pack square = f * f;
  Pack y = fma(e, ln2_low, log_tail(f, square));
  y = fma(square, -0.5f, y);
  return log_ends(x, fma(e, ln2_high, f + y));
}

FOVEA_INLINE Pack log2_of(Pack x) {
  Pack f, e;
  split(x, f, e);
  const Pack square = f * f;
  const Pack y = f + fma(square, -0.5f, log_tail(f, square));
  return log_ends(x, fma(y, log2_e, e));
}

// log(u) for u = 1 + x rounded, plus what the rounding lost.
FOVEA_INLINE Pack log1p_of(Pack x) {
  const Pack u = x + 1.0f;
  const Pack lost = (x - (u - 1.0f)) / u;
  const Pack y = log_of(u);
  return each(
      [](vf l, vf v, vf whole_part, vf given) {
        const vi inside = (whole_part > 0.0f) & (whole_part < __builtin_inff());
        const vf sum = inside ? v + l : v;
        return whole_part == 1.0f ? given : sum;
      },
      lost, y, u, x);
}

FOVEA_INLINE Pack softplus_of(Pack x) {
  const Pack y = log1p_of(exp_of(x));
  return each([](vf v, vf s) { return v > 20.0f ? v : s; }, x, y);
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_ISA::strip

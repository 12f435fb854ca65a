// Real half of interval.h: src/ir/interval_real. Ends are computed with the very operations that
// decisions are; functions of the C library are widened by one unit in the last place.
#pragma once

#include "math.h"
#include "value_set.h"

namespace fovea::device::reals {

FOVEA_DEVICE float least(float a, float b) { return b < a ? b : a; }
FOVEA_DEVICE float most(float a, float b) { return a < b ? b : a; }
FOVEA_DEVICE bool is_finite(float x) { return arith::absolute(x) < infinity(); }
FOVEA_DEVICE bool finite(RealInterval a) {
  return a.empty() || (is_finite(a.lo) && is_finite(a.hi));
}
FOVEA_DEVICE RealInterval around(float a, float b, float c, float d, bool nan) {
  return {least(least(a, b), least(c, d)), most(most(a, b), most(c, d)), nan};
}

// The next number towards the infinity of that sign.
FOVEA_DEVICE float next_up(float x) {
  if (!(x < infinity())) return x;  // NaN too
  if (x == 0) return float_of_bits(1u);
  return float_of_bits(x > 0 ? bits_of(x) + 1 : bits_of(x) - 1);
}
FOVEA_DEVICE float next_down(float x) { return -next_up(-x); }

FOVEA_DEVICE RealInterval hull(RealInterval a, RealInterval b) {
  return {least(a.lo, b.lo), most(a.hi, b.hi), a.nan || b.nan};
}
FOVEA_DEVICE RealInterval negate(RealInterval a) { return {-a.hi, -a.lo, a.nan}; }
FOVEA_DEVICE RealInterval add(RealInterval a, RealInterval b) {
  if (a.empty() || b.empty()) return RealInterval::none();
  if (!finite(a) || !finite(b)) return {};  // inf - inf
  return {add_rn(a.lo, b.lo), add_rn(a.hi, b.hi), a.nan || b.nan};
}
FOVEA_DEVICE RealInterval subtract(RealInterval a, RealInterval b) { return add(a, negate(b)); }
FOVEA_DEVICE RealInterval multiply(RealInterval a, RealInterval b) {
  if (a.empty() || b.empty()) return RealInterval::none();
  if (!finite(a) || !finite(b)) return {};  // 0 * inf
  return around(mul_rn(a.lo, b.lo), mul_rn(a.lo, b.hi), mul_rn(a.hi, b.lo), mul_rn(a.hi, b.hi),
                a.nan || b.nan);
}
FOVEA_DEVICE RealInterval divide(RealInterval a, RealInterval b) {
  if (a.empty() || b.empty()) return RealInterval::none();
  const bool zero = b.lo <= 0 && b.hi >= 0;
  if (!finite(a) || !finite(b) || zero) return {};
  return around(div_rn(a.lo, b.lo), div_rn(a.lo, b.hi), div_rn(a.hi, b.lo), div_rn(a.hi, b.hi),
                a.nan || b.nan);
}
FOVEA_DEVICE RealInterval absolute(RealInterval a) {
  if (a.empty() || a.lo >= 0) return a;
  return {a.hi >= 0 ? 0.0f : -a.hi, most(-a.lo, a.hi), a.nan};
}
FOVEA_DEVICE RealInterval minimum(RealInterval a, RealInterval b) {
  if (a.empty() || b.empty()) return RealInterval::none();
  return {least(a.lo, b.lo), least(a.hi, b.hi), a.nan || b.nan};
}
FOVEA_DEVICE RealInterval maximum(RealInterval a, RealInterval b) {
  if (a.empty() || b.empty()) return RealInterval::none();
  return {most(a.lo, b.lo), most(a.hi, b.hi), a.nan || b.nan};
}
FOVEA_DEVICE RealInterval clamp(RealInterval x, RealInterval lo, RealInterval hi) {
  return minimum(maximum(x, lo), hi);
}

// Increasing functions of the C library, from `floor` to `ceiling`.
template <class F>
FOVEA_DEVICE RealInterval increasing(F f, RealInterval a, float floor, float ceiling) {
  if (a.empty()) return RealInterval::none();
  return {most(next_down(f(a.lo)), floor), least(next_up(f(a.hi)), ceiling), a.nan};
}
// Increasing above `start`, NaN below it.
template <class F>
FOVEA_DEVICE RealInterval increasing_from(F f, RealInterval a, float start) {
  if (a.empty() || a.hi < start) return RealInterval::none();
  const RealInterval inside{most(a.lo, start), a.hi, a.nan || a.lo < start};
  return increasing(f, inside, -infinity(), infinity());
}
// floor, ceil, round, sign: exact and increasing.
template <class F>
FOVEA_DEVICE RealInterval step(F f, RealInterval a) {
  if (a.empty()) return RealInterval::none();
  return {f(a.lo), f(a.hi), a.nan};
}
FOVEA_DEVICE RealInterval sine(RealInterval a) {
  return a.empty() ? a : RealInterval{-1, 1, a.nan || !finite(a)};
}
FOVEA_DEVICE RealInterval rsqrt(RealInterval a) {  // decreasing; 1 / sqrt(-0) is -inf
  if (a.empty() || !(a.lo > 0)) return {};
  return {next_down(exact::rsqrt(a.hi)), next_up(exact::rsqrt(a.lo)), a.nan};
}
FOVEA_DEVICE RealInterval power(RealInterval a, RealInterval b) {
  if (!a.single() || !b.single() || a.lo == 0) return {};  // the sign of a zero base is not known
  return RealInterval::of(exact::power(a.lo, b.lo));
}

FOVEA_DEVICE IntInterval to_int(RealInterval a) {
  if (a.empty()) return IntInterval::of(0);  // NaN
  const long long lo = arith::to_int(a.lo), hi = arith::to_int(a.hi);
  if (!a.nan) return {lo, hi};
  return {lo < 0 ? lo : 0, hi > 0 ? hi : 0};
}
FOVEA_DEVICE RealInterval from_int(IntInterval a) {
  return {static_cast<float>(a.lo), static_cast<float>(a.hi), false};
}

FOVEA_DEVICE BoolSet less(RealInterval a, RealInterval b) {
  if (a.empty() || b.empty()) return BoolSet::of(false);
  return {a.nan || b.nan || a.hi >= b.lo, a.lo < b.hi};
}
FOVEA_DEVICE BoolSet less_equal(RealInterval a, RealInterval b) {
  if (a.empty() || b.empty()) return BoolSet::of(false);
  return {a.nan || b.nan || a.hi > b.lo, a.lo <= b.hi};
}
FOVEA_DEVICE BoolSet equal(RealInterval a, RealInterval b) {
  if (a.empty() || b.empty()) return BoolSet::of(false);
  const bool same = a.single() && b.single() && a.lo == b.lo;
  return {!same, a.lo <= b.hi && b.lo <= a.hi};
}

}  // namespace fovea::device::reals

// Integer half of interval.h: src/ir/interval_int.
#pragma once

#include "value_set.h"

namespace fovea::device::ints {

FOVEA_DEVICE long long least(long long a, long long b) { return b < a ? b : a; }
FOVEA_DEVICE long long most(long long a, long long b) { return a < b ? b : a; }
FOVEA_DEVICE IntInterval around(long long a, long long b, long long c, long long d) {
  return {least(least(a, b), least(c, d)), most(most(a, b), most(c, d))};
}
FOVEA_DEVICE long long floor_quotient(long long a, long long b) {
  const long long q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

FOVEA_DEVICE IntInterval wrapped(IntInterval exact) {
  return exact.fits_i32() ? exact : IntInterval{};
}
FOVEA_DEVICE IntInterval hull(IntInterval a, IntInterval b) {
  return {least(a.lo, b.lo), most(a.hi, b.hi)};
}
// Sums and products as they are in unbounded integers; `wrapped` makes i32 of them.
FOVEA_DEVICE IntInterval add(IntInterval a, IntInterval b) { return {a.lo + b.lo, a.hi + b.hi}; }
FOVEA_DEVICE IntInterval subtract(IntInterval a, IntInterval b) {
  return {a.lo - b.hi, a.hi - b.lo};
}
FOVEA_DEVICE IntInterval multiply(IntInterval a, IntInterval b) {
  return around(a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi);
}
FOVEA_DEVICE IntInterval scale(long long factor, IntInterval a) {  // a term of a linear form
  return factor > 0 ? IntInterval{factor * a.lo, factor * a.hi}
                    : IntInterval{factor * a.hi, factor * a.lo};
}

// Quotients by a divisor of one sign: the extremes are at corners.
template <bool floors>
FOVEA_DEVICE long long quotient(long long a, long long b) {
  return floors ? floor_quotient(a, b) : a / b;
}
template <bool floors>
FOVEA_DEVICE IntInterval divide_signed(IntInterval a, IntInterval b) {
  return around(quotient<floors>(a.lo, b.lo), quotient<floors>(a.lo, b.hi),
                quotient<floors>(a.hi, b.lo), quotient<floors>(a.hi, b.hi));
}
template <bool floors>
FOVEA_DEVICE IntInterval divide(IntInterval a, IntInterval b) {
  if (b.contains(-1) && a.contains(-2147483648LL)) return {};  // INT_MIN / -1 wraps
  if (!b.contains(0)) return divide_signed<floors>(a, b);
  IntInterval out = IntInterval::of(0);  // by zero
  if (b.lo < 0) out = hull(out, divide_signed<floors>(a, {b.lo, -1}));
  if (b.hi > 0) out = hull(out, divide_signed<floors>(a, {1, b.hi}));
  return out;
}

template <bool floors>
FOVEA_DEVICE IntInterval remainder(IntInterval a, IntInterval b) {
  if (b.lo == 0 && b.hi == 0) return IntInterval::of(0);
  if (b.single() && b.lo > 0 && (floors || a.lo >= 0)) {
    const long long first = floor_quotient(a.lo, b.lo), last = floor_quotient(a.hi, b.lo);
    return first == last ? IntInterval{a.lo - b.lo * first, a.hi - b.lo * last}
                         : IntInterval{0, b.lo - 1};
  }
  if (a.lo >= 0 && b.lo > a.hi) return a;
  if (floors) return {least(b.lo + 1, 0), most(b.hi - 1, 0)};  // has the sign of the divisor
  const long long largest = most(-b.lo, b.hi) - 1;             // has the sign of the dividend
  return {a.lo < 0 ? -least(largest, -a.lo) : 0, a.hi > 0 ? least(largest, a.hi) : 0};
}

FOVEA_DEVICE IntInterval absolute(IntInterval a) {
  if (a.lo == -2147483648LL) return {};  // |INT_MIN| wraps
  if (a.lo >= 0) return a;
  return {a.hi >= 0 ? 0 : -a.hi, most(-a.lo, a.hi)};
}
FOVEA_DEVICE IntInterval minimum(IntInterval a, IntInterval b) {
  return {least(a.lo, b.lo), least(a.hi, b.hi)};
}
FOVEA_DEVICE IntInterval maximum(IntInterval a, IntInterval b) {
  return {most(a.lo, b.lo), most(a.hi, b.hi)};
}
FOVEA_DEVICE IntInterval clamp(IntInterval x, IntInterval lo, IntInterval hi) {
  return minimum(maximum(x, lo), hi);
}

// The smallest 2^n - 1 that is at least x >= 0.
FOVEA_DEVICE long long all_ones_above(long long x) {
  x |= x >> 1, x |= x >> 2, x |= x >> 4, x |= x >> 8, x |= x >> 16;
  return x;
}
FOVEA_DEVICE IntInterval bit_and(IntInterval a, IntInterval b) {
  if (a.single() && b.single()) return IntInterval::of(a.lo & b.lo);
  if (a.lo < 0 && b.lo < 0) return {};
  return {0, a.lo < 0 ? b.hi : b.lo < 0 ? a.hi : least(a.hi, b.hi)};
}
FOVEA_DEVICE IntInterval bit_or(IntInterval a, IntInterval b) {
  if (a.single() && b.single()) return IntInterval::of(a.lo | b.lo);
  if (a.lo < 0 || b.lo < 0) return {};
  return {most(a.lo, b.lo), all_ones_above(most(a.hi, b.hi))};
}
FOVEA_DEVICE IntInterval bit_xor(IntInterval a, IntInterval b) {
  if (a.single() && b.single()) return IntInterval::of(a.lo ^ b.lo);
  if (a.lo < 0 || b.lo < 0) return {};
  return {0, all_ones_above(most(a.hi, b.hi))};
}
FOVEA_DEVICE IntInterval bit_not(IntInterval a) { return {-1 - a.hi, -1 - a.lo}; }
FOVEA_DEVICE IntInterval shift_left(IntInterval a, IntInterval b) {
  if (!b.single()) return {};
  const long long factor = 1LL << (b.lo & 31);
  return wrapped({a.lo * factor, a.hi * factor});
}
FOVEA_DEVICE IntInterval shift_right(IntInterval a, IntInterval b) {
  if (!b.single()) return {least(a.lo, 0), most(a.hi, -1)};
  return {a.lo >> (b.lo & 31), a.hi >> (b.lo & 31)};
}

// Of a difference a - b: is it less than 0, at most 0, 0?
FOVEA_DEVICE BoolSet less(IntInterval d) { return {d.hi >= 0, d.lo < 0}; }
FOVEA_DEVICE BoolSet less_equal(IntInterval d) { return {d.hi > 0, d.lo <= 0}; }
FOVEA_DEVICE BoolSet equal_zero(IntInterval d) { return {d.lo != 0 || d.hi != 0, d.contains(0)}; }
// x % modulus == rest with a modulus above 0.
FOVEA_DEVICE BoolSet equals_modulo(IntInterval x, long long modulus, long long rest) {
  if (rest < 0 || rest >= modulus) return BoolSet::of(false);
  const long long upto = floor_quotient(x.hi - rest, modulus);
  const long long below = floor_quotient(x.lo - 1 - rest, modulus);
  const long long hits = upto - below;  // how many of x.lo .. x.hi fit
  return {hits < x.hi - x.lo + 1, hits > 0};
}

}  // namespace fovea::device::ints

#include "ir/interval_int.h"

#include <algorithm>
#include <bit>
#include <initializer_list>

#include "ir/arith.h"

namespace fovea::ir {
namespace ints {
namespace {

constexpr std::int64_t int_min = std::numeric_limits<std::int32_t>::min();

IntInterval around(std::initializer_list<std::int64_t> corners) {
  return {std::min(corners), std::max(corners)};
}

std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
  const std::int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

// Quotients by a divisor of one sign: real division is monotone in each operand there, and
// rounding keeps that, so the extremes are at corners.
IntInterval divide_signed(Op op, IntInterval a, IntInterval b) {
  const auto quotient = [op](std::int64_t x, std::int64_t y) {
    return op == Op::FloorDiv ? floor_quotient(x, y) : x / y;
  };
  return around(
      {quotient(a.lo, b.lo), quotient(a.lo, b.hi), quotient(a.hi, b.lo), quotient(a.hi, b.hi)});
}

// The smallest 2^n - 1 that is at least x >= 0.
std::int64_t all_ones_above(std::int64_t x) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(x) + 1)) - 1;
}

}  // namespace

IntInterval hull(IntInterval a, IntInterval b) {
  return {std::min(a.lo, b.lo), std::max(a.hi, b.hi)};
}

IntInterval add(IntInterval a, IntInterval b) { return {a.lo + b.lo, a.hi + b.hi}; }

IntInterval subtract(IntInterval a, IntInterval b) { return {a.lo - b.hi, a.hi - b.lo}; }

IntInterval multiply(IntInterval a, IntInterval b) {
  return around({a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi});
}

IntInterval divide(Op op, IntInterval a, IntInterval b) {
  if (b.contains(-1) && a.contains(int_min)) return {};  // INT_MIN / -1 wraps
  if (!b.contains(0)) return divide_signed(op, a, b);
  IntInterval out = IntInterval::of(0);  // by zero
  if (b.lo < 0) out = hull(out, divide_signed(op, a, {b.lo, -1}));
  if (b.hi > 0) out = hull(out, divide_signed(op, a, {1, b.hi}));
  return out;
}

IntInterval remainder(Op op, IntInterval a, IntInterval b) {
  if (b == IntInterval::of(0)) return IntInterval::of(0);
  const bool floors = op == Op::FloorMod;
  if (b.single() && b.lo > 0 && (floors || a.lo >= 0)) {
    const bool one_period = floor_quotient(a.lo, b.lo) == floor_quotient(a.hi, b.lo);
    const auto rest = [&](std::int64_t x) { return x - b.lo * floor_quotient(x, b.lo); };
    return one_period ? IntInterval{rest(a.lo), rest(a.hi)} : IntInterval{0, b.lo - 1};
  }
  if (a.lo >= 0 && b.lo > a.hi) return a;
  if (floors) {  // has the sign of the divisor
    return {std::min<std::int64_t>(b.lo + 1, 0), std::max<std::int64_t>(b.hi - 1, 0)};
  }
  const std::int64_t largest = std::max(-b.lo, b.hi) - 1;  // has the sign of the dividend
  return {a.lo < 0 ? -std::min(largest, -a.lo) : 0, a.hi > 0 ? std::min(largest, a.hi) : 0};
}

IntInterval absolute(IntInterval a) {
  if (a.lo == int_min) return {};  // |INT_MIN| wraps
  if (a.lo >= 0) return a;
  return {a.hi >= 0 ? 0 : -a.hi, std::max(-a.lo, a.hi)};
}

IntInterval minimum(IntInterval a, IntInterval b) {
  return {std::min(a.lo, b.lo), std::min(a.hi, b.hi)};
}

IntInterval maximum(IntInterval a, IntInterval b) {
  return {std::max(a.lo, b.lo), std::max(a.hi, b.hi)};
}

IntInterval bitwise(Op op, IntInterval a, IntInterval b) {
  if (a.single() && b.single()) {
    const auto x = static_cast<std::int32_t>(a.lo), y = static_cast<std::int32_t>(b.lo);
    return IntInterval::of(op == Op::BitAnd ? x & y : op == Op::BitOr ? x | y : x ^ y);
  }
  if (op == Op::BitAnd && (a.lo >= 0 || b.lo >= 0)) {
    return {0, a.lo < 0 ? b.hi : b.lo < 0 ? a.hi : std::min(a.hi, b.hi)};
  }
  if (a.lo < 0 || b.lo < 0) return {};
  const std::int64_t top = all_ones_above(std::max(a.hi, b.hi));
  return {op == Op::BitOr ? std::max(a.lo, b.lo) : 0, top};
}

IntInterval shift(Op op, IntInterval a, IntInterval b) {
  if (!b.single()) {
    if (op == Op::Shl) return {};
    return {std::min<std::int64_t>(a.lo, 0), std::max<std::int64_t>(a.hi, -1)};
  }
  const std::int64_t count = b.lo & 31;
  if (op == Op::Shr) return {a.lo >> count, a.hi >> count};
  return wrapped({a.lo * (std::int64_t{1} << count), a.hi * (std::int64_t{1} << count)});
}

}  // namespace ints

IntInterval wrapped(IntInterval exact) { return exact.fits_i32() ? exact : IntInterval{}; }

BoolSet less(IntInterval d) { return {d.hi >= 0, d.lo < 0}; }
BoolSet less_equal(IntInterval d) { return {d.hi > 0, d.lo <= 0}; }
BoolSet equal_zero(IntInterval d) { return {d.lo != 0 || d.hi != 0, d.contains(0)}; }

BoolSet equals_modulo(IntInterval x, std::int64_t modulus, std::int64_t rest) {
  if (rest < 0 || rest >= modulus) return BoolSet::of(false);
  const std::int64_t upto = ints::floor_quotient(x.hi - rest, modulus);
  const std::int64_t below = ints::floor_quotient(x.lo - 1 - rest, modulus);
  const std::int64_t hits = upto - below;  // how many of x.lo .. x.hi fit
  return {hits < x.hi - x.lo + 1, hits > 0};
}

}  // namespace fovea::ir

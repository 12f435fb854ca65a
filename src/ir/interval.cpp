#include "ir/interval.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <initializer_list>

#include "ir/arith.h"

namespace fovea::ir {
namespace {

// In 64 bits: operands are i32, so sums and products are exact.
namespace ints {

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

// Decisions are computed in f32 operation by operation, and rounding to nearest is monotone, so
// applying the very same f32 operation to the ends is sound without outward rounding; only
// functions that come from libm, whose last bit need not be monotone, are widened.
namespace reals {

constexpr float infinity = std::numeric_limits<float>::infinity();

bool finite(RealInterval a) { return a.empty() || (std::isfinite(a.lo) && std::isfinite(a.hi)); }

RealInterval around(std::initializer_list<float> corners, bool nan) {
  return {std::min(corners), std::max(corners), nan};
}

// The operation itself, on one number.
float at(Op op, float x) {
  const Cell<float> cell = Cell<float>::real(x);
  return apply<float>(op, &cell).f;
}

// Increasing functions of libm: ends, one unit in the last place further out.
RealInterval increasing(Op op, RealInterval a, float floor, float ceiling) {
  if (a.empty()) return RealInterval::none();
  const float lo = std::nextafter(at(op, a.lo), -infinity);
  const float hi = std::nextafter(at(op, a.hi), infinity);
  return {std::max(lo, floor), std::min(hi, ceiling), a.nan};
}

// Increasing above `start`, NaN below it.
RealInterval increasing_from(Op op, RealInterval a, float start) {
  if (a.empty() || a.hi < start) return RealInterval::none();
  const bool nan = a.nan || a.lo < start;
  RealInterval inside{std::max(a.lo, start), a.hi, nan};
  return increasing(op, inside, -infinity, infinity);
}

// floor, ceil, round, sign: exact and increasing.
RealInterval step(Op op, RealInterval a) {
  if (a.empty()) return RealInterval::none();
  return {at(op, a.lo), at(op, a.hi), a.nan};
}

RealInterval negate(RealInterval a) { return {-a.hi, -a.lo, a.nan}; }

RealInterval hull(RealInterval a, RealInterval b) {
  return {std::min(a.lo, b.lo), std::max(a.hi, b.hi), a.nan || b.nan};
}

RealInterval add(RealInterval a, RealInterval b) {
  if (a.empty() || b.empty()) return RealInterval::none();
  if (!finite(a) || !finite(b)) return {};  // inf - inf
  return {a.lo + b.lo, a.hi + b.hi, a.nan || b.nan};
}

RealInterval subtract(RealInterval a, RealInterval b) { return add(a, negate(b)); }

RealInterval multiply(RealInterval a, RealInterval b) {
  if (a.empty() || b.empty()) return RealInterval::none();
  if (!finite(a) || !finite(b)) return {};  // 0 * inf
  return around({a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi}, a.nan || b.nan);
}

RealInterval divide(RealInterval a, RealInterval b) {
  if (a.empty() || b.empty()) return RealInterval::none();
  const bool zero = b.lo <= 0 && b.hi >= 0;
  if (!finite(a) || !finite(b) || zero) return {};
  return around({a.lo / b.lo, a.lo / b.hi, a.hi / b.lo, a.hi / b.hi}, a.nan || b.nan);
}

RealInterval absolute(RealInterval a) {
  if (a.empty() || a.lo >= 0) return a;
  return {a.hi >= 0 ? 0.0f : -a.hi, std::max(-a.lo, a.hi), a.nan};
}

RealInterval minimum(RealInterval a, RealInterval b) {
  if (a.empty() || b.empty()) return RealInterval::none();
  return {std::min(a.lo, b.lo), std::min(a.hi, b.hi), a.nan || b.nan};
}

RealInterval maximum(RealInterval a, RealInterval b) {
  if (a.empty() || b.empty()) return RealInterval::none();
  return {std::max(a.lo, b.lo), std::max(a.hi, b.hi), a.nan || b.nan};
}

RealInterval function(Op op, RealInterval a) {
  switch (op) {
    case Op::Exp:
    case Op::Exp2:
    case Op::Softplus: return increasing(op, a, 0, infinity);
    case Op::Expm1: return increasing(op, a, -1, infinity);
    case Op::Tanh:
    case Op::Erf: return increasing(op, a, -1, 1);
    case Op::Sigmoid: return increasing(op, a, 0, 1);
    case Op::Log:
    case Op::Log2:
    case Op::Sqrt: return increasing_from(op, a, 0);
    case Op::Log1p: return increasing_from(op, a, -1);
    case Op::Sin:
    case Op::Cos: return a.empty() ? a : RealInterval{-1, 1, a.nan || !finite(a)};
    case Op::Rsqrt: {  // decreasing; 1 / sqrt(-0) is -inf
      if (a.empty() || !(a.lo > 0)) return {};
      return {std::nextafter(at(op, a.hi), -infinity), std::nextafter(at(op, a.lo), infinity),
              a.nan};
    }
    case Op::Floor:
    case Op::Ceil:
    case Op::Round:
    case Op::SignF: return step(op, a);
    default: return {};  // tan: anything
  }
}

RealInterval power(RealInterval a, RealInterval b) {
  if (!a.single() || !b.single() || a.lo == 0) return {};  // the sign of a zero base is not known
  const Cell<float> cells[] = {Cell<float>::real(a.lo), Cell<float>::real(b.lo)};
  return RealInterval::of(apply<float>(Op::Pow, cells).f);
}

IntInterval to_int(RealInterval a) {
  IntInterval out = IntInterval::of(0);  // NaN
  if (a.empty()) return out;
  const IntInterval numbers{arith::to_int(a.lo), arith::to_int(a.hi)};
  return a.nan ? IntInterval{std::min<std::int64_t>(0, numbers.lo),
                             std::max<std::int64_t>(0, numbers.hi)}
               : numbers;
}

RealInterval from_int(IntInterval a) {
  return {static_cast<float>(a.lo), static_cast<float>(a.hi), false};
}

BoolSet less(RealInterval a, RealInterval b) {
  if (a.empty() || b.empty()) return BoolSet::of(false);
  return {a.nan || b.nan || a.hi >= b.lo, a.lo < b.hi};
}

BoolSet less_equal(RealInterval a, RealInterval b) {
  if (a.empty() || b.empty()) return BoolSet::of(false);
  return {a.nan || b.nan || a.hi > b.lo, a.lo <= b.hi};
}

BoolSet equal(RealInterval a, RealInterval b) {
  if (a.empty() || b.empty()) return BoolSet::of(false);
  const bool same = a.single() && b.single() && a.lo == b.lo;
  return {!same, a.lo <= b.hi && b.lo <= a.hi};
}

}  // namespace reals

Range of(IntInterval i) { return {i, {}, {}}; }
Range of(RealInterval f) { return {{}, f, {}}; }
Range of(BoolSet b) { return {{}, {}, b}; }

BoolSet equal_bools(BoolSet a, BoolSet b) {
  const bool same = (a.can_true && b.can_true) || (a.can_false && b.can_false);
  const bool differ = (a.can_true && b.can_false) || (a.can_false && b.can_true);
  return {differ, same};
}

// Union over the branches that can be taken.
Range choose(const Range& condition, const Range& x, const Range& y) {
  if (condition.b.always()) return x;
  if (condition.b.never()) return y;
  return hull(x, y);
}

RealInterval from_bool(BoolSet a) {
  return {a.can_false ? 0.0f : 1.0f, a.can_true ? 1.0f : 0.0f, false};
}

}  // namespace

Range hull(const Range& a, const Range& b) {
  return {ints::hull(a.i, b.i),
          reals::hull(a.f, b.f),
          {a.b.can_false || b.b.can_false, a.b.can_true || b.b.can_true}};
}

Range apply_range(Op op, std::span<const Range> a) {
  switch (op) {
    case Op::AddF: return of(reals::add(a[0].f, a[1].f));
    case Op::AddI: return of(wrapped(ints::add(a[0].i, a[1].i)));
    case Op::SubF: return of(reals::subtract(a[0].f, a[1].f));
    case Op::SubI: return of(wrapped(ints::subtract(a[0].i, a[1].i)));
    case Op::MulF: return of(reals::multiply(a[0].f, a[1].f));
    case Op::MulI: return of(wrapped(ints::multiply(a[0].i, a[1].i)));
    case Op::DivF: return of(reals::divide(a[0].f, a[1].f));
    case Op::FloorDiv:
    case Op::TruncDiv: return of(ints::divide(op, a[0].i, a[1].i));
    case Op::FloorMod:
    case Op::TruncRem: return of(ints::remainder(op, a[0].i, a[1].i));
    case Op::NegF: return of(reals::negate(a[0].f));
    case Op::NegI: return of(wrapped(ints::subtract(IntInterval::of(0), a[0].i)));
    case Op::AbsF: return of(reals::absolute(a[0].f));
    case Op::AbsI: return of(ints::absolute(a[0].i));
    case Op::MinF: return of(reals::minimum(a[0].f, a[1].f));
    case Op::MinI: return of(ints::minimum(a[0].i, a[1].i));
    case Op::MaxF: return of(reals::maximum(a[0].f, a[1].f));
    case Op::MaxI: return of(ints::maximum(a[0].i, a[1].i));
    case Op::ClampF: return of(reals::minimum(reals::maximum(a[0].f, a[1].f), a[2].f));
    case Op::ClampI: return of(ints::minimum(ints::maximum(a[0].i, a[1].i), a[2].i));
    case Op::SignF:
    case Op::Exp:
    case Op::Exp2:
    case Op::Expm1:
    case Op::Log:
    case Op::Log2:
    case Op::Log1p:
    case Op::Sqrt:
    case Op::Rsqrt:
    case Op::Tanh:
    case Op::Sigmoid:
    case Op::Softplus:
    case Op::Erf:
    case Op::Sin:
    case Op::Cos:
    case Op::Tan:
    case Op::Floor:
    case Op::Ceil:
    case Op::Round: return of(reals::function(op, a[0].f));
    case Op::Pow: return of(reals::power(a[0].f, a[1].f));
    case Op::LtF: return of(reals::less(a[0].f, a[1].f));
    case Op::LtI: return of(less(ints::subtract(a[0].i, a[1].i)));
    case Op::LeF: return of(reals::less_equal(a[0].f, a[1].f));
    case Op::LeI: return of(less_equal(ints::subtract(a[0].i, a[1].i)));
    case Op::EqF: return of(reals::equal(a[0].f, a[1].f));
    case Op::EqI: return of(equal_zero(ints::subtract(a[0].i, a[1].i)));
    case Op::EqB: return of(equal_bools(a[0].b, a[1].b));
    case Op::NeF: return of(reals::equal(a[0].f, a[1].f).negated());
    case Op::NeI: return of(equal_zero(ints::subtract(a[0].i, a[1].i)).negated());
    case Op::NeB: return of(equal_bools(a[0].b, a[1].b).negated());
    case Op::And:
      return of(BoolSet{a[0].b.can_false || a[1].b.can_false, a[0].b.can_true && a[1].b.can_true});
    case Op::Or:
      return of(BoolSet{a[0].b.can_false && a[1].b.can_false, a[0].b.can_true || a[1].b.can_true});
    case Op::Not: return of(a[0].b.negated());
    case Op::SelectF:
    case Op::SelectI:
    case Op::SelectB: return choose(a[0], a[1], a[2]);
    case Op::BitAnd:
    case Op::BitOr:
    case Op::BitXor: return of(ints::bitwise(op, a[0].i, a[1].i));
    case Op::BitNot: return of(IntInterval{-1 - a[0].i.hi, -1 - a[0].i.lo});
    case Op::Shl:
    case Op::Shr: return of(ints::shift(op, a[0].i, a[1].i));
    case Op::FloatOfInt: return of(reals::from_int(a[0].i));
    case Op::FloatOfBool: return of(from_bool(a[0].b));
    case Op::IntOfFloat: return of(reals::to_int(a[0].f));
    case Op::IntOfBool: return of(IntInterval{a[0].b.can_false ? 0 : 1, a[0].b.can_true ? 1 : 0});
    case Op::BoolOfFloat: return of(reals::equal(a[0].f, RealInterval::of(0)).negated());
    case Op::BoolOfInt:
      return of(equal_zero(a[0].i).negated());
    FOVEA_LEAF_CASES:
      break;
  }
  return {};
}

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

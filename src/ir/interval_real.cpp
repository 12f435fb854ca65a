#include "ir/interval_real.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "ir/arith.h"

namespace fovea::ir::reals {
namespace {

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

}  // namespace

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

RealInterval negate(RealInterval a) { return {-a.hi, -a.lo, a.nan}; }

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

}  // namespace fovea::ir::reals

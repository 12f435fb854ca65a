#include "ir/interval.h"

#include "ir/interval_int.h"
#include "ir/interval_real.h"

namespace fovea::ir {
namespace {

Range of(IntInterval i) { return {i, {}, {}}; }
Range of(RealInterval f) { return {{}, f, {}}; }
Range of(BoolSet b) { return {{}, {}, b}; }

BoolSet negated(BoolSet a) { return {a.can_true, a.can_false}; }

BoolSet equal_bools(BoolSet a, BoolSet b) {
  const bool same = (a.can_true && b.can_true) || (a.can_false && b.can_false);
  const bool differ = (a.can_true && b.can_false) || (a.can_false && b.can_true);
  return {differ, same};
}

// Union over the branches that can be taken.
Range choose(const Range& condition, const Range& x, const Range& y) {
  if (condition.b.always()) return x;
  if (condition.b.never()) return y;
  return {ints::hull(x.i, y.i),
          reals::hull(x.f, y.f),
          {x.b.can_false || y.b.can_false, x.b.can_true || y.b.can_true}};
}

RealInterval from_bool(BoolSet a) {
  return {a.can_false ? 0.0f : 1.0f, a.can_true ? 1.0f : 0.0f, false};
}

}  // namespace

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
    case Op::NeF: return of(negated(reals::equal(a[0].f, a[1].f)));
    case Op::NeI: return of(negated(equal_zero(ints::subtract(a[0].i, a[1].i))));
    case Op::NeB: return of(negated(equal_bools(a[0].b, a[1].b)));
    case Op::And:
      return of(BoolSet{a[0].b.can_false || a[1].b.can_false, a[0].b.can_true && a[1].b.can_true});
    case Op::Or:
      return of(BoolSet{a[0].b.can_false && a[1].b.can_false, a[0].b.can_true || a[1].b.can_true});
    case Op::Not: return of(negated(a[0].b));
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
    case Op::BoolOfFloat: return of(negated(reals::equal(a[0].f, RealInterval::of(0))));
    case Op::BoolOfInt:
      return of(negated(equal_zero(a[0].i)));
    FOVEA_LEAF_CASES:
      break;
  }
  return {};
}

}  // namespace fovea::ir

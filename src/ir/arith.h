// What each operation computes: the definition of the language, one line per operation. Constants
// are folded with it, ir/eval evaluates with it, and every engine is tested against it.
// docs/language.md says the same in words.
//
// Two precisions exist. In float every operation rounds to f32, and a transcendental function is
// the double function rounded once. In double the f32 values carry a second value, `exact`, which
// is what float would have computed: whatever decides (a comparison, a cast to i32 or bool, an
// index, and the functions that jump: floor, ceil, round, sign) reads that one, so that decisions
// are the same in every precision and every engine.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "ir/op.h"

namespace fovea::ir {

// One value of any type; only the field of its type is meaningful.
template <class Real>
struct Cell {
  Real f{};
  float exact{};  // f as float computes it; equal to f when Real is float
  std::int32_t i{};
  bool b{};

  static Cell real(Real value) {
    Cell cell;
    cell.f = value;
    cell.exact = static_cast<float>(value);
    return cell;
  }
  static Cell integer(std::int32_t value) {
    Cell cell;
    cell.i = value;
    return cell;
  }
  static Cell boolean(bool value) {
    Cell cell;
    cell.b = value;
    return cell;
  }
};

namespace arith {

// Integers wrap: computed as unsigned, where overflow is defined.
constexpr std::int32_t wrap(std::uint32_t x) { return static_cast<std::int32_t>(x); }
constexpr std::uint32_t bits(std::int32_t x) { return static_cast<std::uint32_t>(x); }

constexpr std::int32_t trunc_div(std::int32_t a, std::int32_t b) {
  if (b == 0) return 0;
  if (b == -1) return wrap(0u - bits(a));  // INT_MIN / -1 wraps
  return a / b;
}
constexpr std::int32_t trunc_rem(std::int32_t a, std::int32_t b) {
  return b == 0 || b == -1 ? 0 : a % b;
}
constexpr std::int32_t floor_div(std::int32_t a, std::int32_t b) {
  const std::int32_t quotient = trunc_div(a, b);
  return trunc_rem(a, b) != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}
constexpr std::int32_t floor_mod(std::int32_t a, std::int32_t b) {
  const std::int32_t rest = trunc_rem(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// NaN gives 0; out of range saturates; otherwise towards zero.
constexpr std::int32_t to_int(float x) {
  if (x != x) return 0;
  if (x >= 2147483648.0f) return std::numeric_limits<std::int32_t>::max();
  if (x < -2147483648.0f) return std::numeric_limits<std::int32_t>::min();
  return static_cast<std::int32_t>(x);
}

// NaN in either operand gives NaN, and -0 is less than +0, so that operands may be swapped.
template <class T>
T minimum(T a, T b) {
  if (a != a || b != b) return std::numeric_limits<T>::quiet_NaN();
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
template <class T>
T maximum(T a, T b) {
  if (a != a || b != b) return std::numeric_limits<T>::quiet_NaN();
  if (a == b) return std::signbit(a) ? b : a;
  return a < b ? b : a;
}

inline float sign(float x) {
  return x > 0 ? 1.0f : x < 0 ? -1.0f : x;  // keeps NaN and the sign of zero
}

// The exponents that people write have an exact meaning: x^2 is x * x.
template <class T>
T power(T x, T y) {
  if (y == T(2)) return x * x;
  if (y == T(1)) return x;
  if (y == T(-1)) return T(1) / x;
  return static_cast<T>(std::pow(static_cast<double>(x), static_cast<double>(y)));
}

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
inline double softplus(double x) { return x > 20 ? x : std::log1p(std::exp(x)); }

}  // namespace arith

// Operations that read `exact`: their f32 operands, and all that those are computed from, must be
// computed in f32 operation by operation in every engine. (An index of a load decides too.)
constexpr bool decides(Op op) {
  switch (op) {
    case Op::LtF:
    case Op::LeF:
    case Op::EqF:
    case Op::NeF:
    case Op::IntOfFloat:
    case Op::BoolOfFloat:
    case Op::SignF:
    case Op::Floor:
    case Op::Ceil:
    case Op::Round: return true;
    default: return false;  // the one list of exceptions: everything else computes values
  }
}

// The value of `op` on `a`. Leaves and loads have no arithmetic: eval reads them.
template <class Real>
Cell<Real> apply(Op op, const Cell<Real>* a) {
  using C = Cell<Real>;
  // Applies f32 -> f32 rules in Real and, if that differs, in float.
  const auto real = [](auto rule, auto... cells) {
    C out;
    out.f = static_cast<Real>(rule(cells.f...));
    if constexpr (std::is_same_v<Real, float>) {
      out.exact = out.f;
    } else {
      out.exact = static_cast<float>(rule(cells.exact...));
    }
    return out;
  };
  // A function of one f32 that is defined through double.
  const auto smooth = [&](double (*rule)(double)) {
    return real([rule](auto x) { return static_cast<decltype(x)>(rule(static_cast<double>(x))); },
                a[0]);
  };
  // A function that jumps: decided in float.
  const auto step = [&](float (*rule)(float)) {
    return C::real(static_cast<Real>(rule(a[0].exact)));
  };
  const auto integer = [](std::int32_t value) { return C::integer(value); };
  const auto boolean = [](bool value) { return C::boolean(value); };
  using arith::bits;
  using arith::wrap;

  switch (op) {
    case Op::AddF: return real([](auto x, auto y) { return x + y; }, a[0], a[1]);
    case Op::AddI: return integer(wrap(bits(a[0].i) + bits(a[1].i)));
    case Op::SubF: return real([](auto x, auto y) { return x - y; }, a[0], a[1]);
    case Op::SubI: return integer(wrap(bits(a[0].i) - bits(a[1].i)));
    case Op::MulF: return real([](auto x, auto y) { return x * y; }, a[0], a[1]);
    case Op::MulI: return integer(wrap(bits(a[0].i) * bits(a[1].i)));
    case Op::DivF: return real([](auto x, auto y) { return x / y; }, a[0], a[1]);
    case Op::FloorDiv: return integer(arith::floor_div(a[0].i, a[1].i));
    case Op::FloorMod: return integer(arith::floor_mod(a[0].i, a[1].i));
    case Op::TruncDiv: return integer(arith::trunc_div(a[0].i, a[1].i));
    case Op::TruncRem: return integer(arith::trunc_rem(a[0].i, a[1].i));
    case Op::NegF: return real([](auto x) { return -x; }, a[0]);
    case Op::NegI: return integer(wrap(0u - bits(a[0].i)));
    case Op::AbsF: return real([](auto x) { return std::fabs(x); }, a[0]);
    case Op::AbsI: return integer(a[0].i < 0 ? wrap(0u - bits(a[0].i)) : a[0].i);
    case Op::SignF: return step(arith::sign);
    case Op::MinF: return real([](auto x, auto y) { return arith::minimum(x, y); }, a[0], a[1]);
    case Op::MinI: return integer(a[0].i < a[1].i ? a[0].i : a[1].i);
    case Op::MaxF: return real([](auto x, auto y) { return arith::maximum(x, y); }, a[0], a[1]);
    case Op::MaxI: return integer(a[0].i < a[1].i ? a[1].i : a[0].i);
    case Op::ClampF:
      return real(
          [](auto x, auto lo, auto hi) { return arith::minimum(arith::maximum(x, lo), hi); }, a[0],
          a[1], a[2]);
    case Op::ClampI: {
      const std::int32_t raised = a[0].i < a[1].i ? a[1].i : a[0].i;
      return integer(raised < a[2].i ? raised : a[2].i);
    }
    case Op::Exp: return smooth(std::exp);
    case Op::Exp2: return smooth(std::exp2);
    case Op::Expm1: return smooth(std::expm1);
    case Op::Log: return smooth(std::log);
    case Op::Log2: return smooth(std::log2);
    case Op::Log1p: return smooth(std::log1p);
    case Op::Sqrt: return smooth(std::sqrt);
    case Op::Rsqrt: return smooth([](double x) { return 1 / std::sqrt(x); });
    case Op::Pow: return real([](auto x, auto y) { return arith::power(x, y); }, a[0], a[1]);
    case Op::Tanh: return smooth(std::tanh);
    case Op::Sigmoid: return smooth(arith::sigmoid);
    case Op::Softplus: return smooth(arith::softplus);
    case Op::Erf: return smooth(std::erf);
    case Op::Sin: return smooth(std::sin);
    case Op::Cos: return smooth(std::cos);
    case Op::Tan: return smooth(std::tan);
    case Op::Floor: return step(std::floor);
    case Op::Ceil: return step(std::ceil);
    case Op::Round: return step(std::nearbyint);  // half to even
    case Op::LtF: return boolean(a[0].exact < a[1].exact);
    case Op::LtI: return boolean(a[0].i < a[1].i);
    case Op::LeF: return boolean(a[0].exact <= a[1].exact);
    case Op::LeI: return boolean(a[0].i <= a[1].i);
    case Op::EqF: return boolean(a[0].exact == a[1].exact);
    case Op::EqI: return boolean(a[0].i == a[1].i);
    case Op::EqB: return boolean(a[0].b == a[1].b);
    case Op::NeF: return boolean(a[0].exact != a[1].exact);
    case Op::NeI: return boolean(a[0].i != a[1].i);
    case Op::NeB: return boolean(a[0].b != a[1].b);
    case Op::And: return boolean(a[0].b && a[1].b);
    case Op::Or: return boolean(a[0].b || a[1].b);
    case Op::Not: return boolean(!a[0].b);
    case Op::SelectF:
    case Op::SelectI:
    case Op::SelectB: return a[0].b ? a[1] : a[2];
    case Op::BitAnd: return integer(a[0].i & a[1].i);
    case Op::BitOr: return integer(a[0].i | a[1].i);
    case Op::BitXor: return integer(a[0].i ^ a[1].i);
    case Op::BitNot: return integer(~a[0].i);
    case Op::Shl: return integer(wrap(bits(a[0].i) << (bits(a[1].i) & 31u)));
    case Op::Shr: return integer(a[0].i >> (bits(a[1].i) & 31u));
    case Op::FloatOfInt: {
      C out;  // rounds to f32 in float; in double every i32 is exact
      out.f = static_cast<Real>(a[0].i);
      out.exact = static_cast<float>(a[0].i);
      return out;
    }
    case Op::FloatOfBool: return C::real(a[0].b ? Real(1) : Real(0));
    case Op::IntOfFloat: return integer(arith::to_int(a[0].exact));
    case Op::IntOfBool: return integer(a[0].b ? 1 : 0);
    case Op::BoolOfFloat: return boolean(a[0].exact != 0);
    case Op::BoolOfInt:
      return boolean(a[0].i != 0);
    FOVEA_LEAF_CASES:
      break;
  }
  return C{};
}

}  // namespace fovea::ir

// The operations on symbolic values: all operations of the language, under their names there,
// except floor_div(a, b) for `a // b`, floor_mod(a, b), which is `a % b`, and boolean(x) for
// `bool(x)`. Found by argument-dependent lookup, so a lambda writes tanh(x) or select(c, x, y)
// without naming a namespace.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fovea/trace/value.hpp"

namespace fovea::traced {

// What an operation takes and gives. Checked when the lambda is compiled, with types that may still
// be Any, and again when it runs, with all types known.
enum class Rule : std::uint8_t {
  Number,  // i32 or f32, and gives the same; f32 as soon as one is
  Real,    // numbers to f32
  Order,   // numbers to bool
  Equal,   // numbers, or bools, to bool
  Int,     // i32 to i32
  Logic,   // bool to bool
  Choice,  // bool, and two numbers or two bools
  ToF32,   // casts take everything
  ToI32,
  ToBool,
};
using Kinds = std::span<const Kind>;

constexpr Kind common_number(Kinds kinds) {
  const auto has = [&](Kind kind) { return std::ranges::find(kinds, kind) != kinds.end(); };
  if (has(Kind::Bool)) return Kind::Wrong;
  return has(Kind::F32) ? Kind::F32 : has(Kind::Any) ? Kind::Any : Kind::I32;
}
constexpr Kind all(Kinds kinds, Kind kind) {
  const bool fit = std::ranges::all_of(kinds, [&](Kind k) { return k == kind || k == Kind::Any; });
  return fit ? kind : Kind::Wrong;
}
constexpr Kind unless_wrong(Kind kind, Kind result) { return kind == Kind::Wrong ? kind : result; }

constexpr Kind result(Rule rule, Kinds kinds) {
  switch (rule) {
    case Rule::Number: return common_number(kinds);
    case Rule::Real: return unless_wrong(common_number(kinds), Kind::F32);
    case Rule::Order: return unless_wrong(common_number(kinds), Kind::Bool);
    case Rule::Int: return all(kinds, Kind::I32);
    case Rule::Logic: return all(kinds, Kind::Bool);
    case Rule::ToF32: return Kind::F32;
    case Rule::ToI32: return Kind::I32;
    case Rule::ToBool: return Kind::Bool;
    case Rule::Equal: {
      const Kind bools = all(kinds, Kind::Bool);
      return bools == Kind::Wrong ? result(Rule::Order, kinds) : bools;
    }
    case Rule::Choice: {
      const Kinds branches = kinds.subspan(1);
      const Kind number = common_number(branches);
      return unless_wrong(all(kinds.first(1), Kind::Bool),
                          number == Kind::Wrong ? all(branches, Kind::Bool) : number);
    }
  }
  return Kind::Wrong;
}

template <Rule R, bool right>
constexpr void explain() {
  constexpr bool number = R == Rule::Number || R == Rule::Real || R == Rule::Order;
  static_assert(right || !number, "fovea: takes numbers; cast a condition with f32(c) or i32(c)");
  static_assert(right || R != Rule::Equal, "fovea: a condition can't be equal to a number");
  static_assert(right || R != Rule::Int,
                "fovea: takes i32; for f32 write floor(x / y) or i32(x), for conditions && || !");
  static_assert(right || R != Rule::Logic, "fovea: takes conditions; write x != 0");
  static_assert(right || R != Rule::Choice,
                "fovea: select takes a condition and two values of one type");
}

template <Rule R, class... T>
auto make(Form form, int level, const char* text, const T&... x) {
  constexpr std::array static_kinds{kind_of<T>()...};
  constexpr Kind kind = result(R, static_kinds);
  explain<R, kind != Kind::Wrong>();
  std::vector<NodePtr> args{node_of(x)...};
  std::vector<Kind> kinds;
  for (const NodePtr& arg : args) kinds.push_back(arg->kind);
  const Kind actual = result(R, kinds);
  if (actual == Kind::Wrong) {
    std::string got;
    for (const Kind one : kinds) got += (got.empty() ? "" : ", ") + std::string(kind_name(one));
    refuse("'" + std::string(text) + "' does not take (" + got + ")");
  }
  constexpr Kind shown = kind == Kind::Wrong ? Kind::Any : kind;  // one error is enough
  return Value<shown>(new_node(form, actual, level, text, std::move(args)));
}
template <Rule R>
auto op(int level, const char* text, const auto& a, const auto& b) {
  return make<R>(Form::Infix, level, text, a, b);
}
template <Rule R>
auto prefix(const char* text, const auto& x) {
  return make<R>(Form::Prefix, prefix_level, text, x);
}
template <Rule R, class... T>
auto call(const char* text, const T&... x) {
  return make<R>(Form::Call, atom_level, text, x...);
}

using enum Rule;

auto operator+(const Operand auto& a, const Operand auto& b) { return op<Number>(10, "+", a, b); }
auto operator-(const Operand auto& a, const Operand auto& b) { return op<Number>(10, "-", a, b); }
auto operator*(const Operand auto& a, const Operand auto& b) { return op<Number>(11, "*", a, b); }
auto operator/(const Operand auto& a, const Operand auto& b) { return op<Real>(11, "/", a, b); }
auto operator%(const Operand auto& a, const Operand auto& b) { return op<Int>(11, "%", a, b); }
auto operator<(const Operand auto& a, const Operand auto& b) { return op<Order>(8, "<", a, b); }
auto operator<=(const Operand auto& a, const Operand auto& b) { return op<Order>(8, "<=", a, b); }
auto operator>(const Operand auto& a, const Operand auto& b) { return op<Order>(8, ">", a, b); }
auto operator>=(const Operand auto& a, const Operand auto& b) { return op<Order>(8, ">=", a, b); }
auto operator==(const Operand auto& a, const Operand auto& b) { return op<Equal>(7, "==", a, b); }
auto operator!=(const Operand auto& a, const Operand auto& b) { return op<Equal>(7, "!=", a, b); }
auto operator&&(const Operand auto& a, const Operand auto& b) { return op<Logic>(3, "&&", a, b); }
auto operator||(const Operand auto& a, const Operand auto& b) { return op<Logic>(2, "||", a, b); }
auto operator&(const Operand auto& a, const Operand auto& b) { return op<Int>(6, "&", a, b); }
auto operator^(const Operand auto& a, const Operand auto& b) { return op<Int>(5, "^", a, b); }
auto operator|(const Operand auto& a, const Operand auto& b) { return op<Int>(4, "|", a, b); }
auto operator<<(const Operand auto& a, const Operand auto& b) { return op<Int>(9, "<<", a, b); }
auto operator>>(const Operand auto& a, const Operand auto& b) { return op<Int>(9, ">>", a, b); }
auto operator-(const Traced auto& x) { return prefix<Number>("-", x); }
auto operator!(const Traced auto& x) { return prefix<Logic>("!", x); }
auto operator~(const Traced auto& x) { return prefix<Int>("~", x); }

// A captured Scalar is not a variable: only what the lambda made itself can be changed.
template <class T>
concept Variable = Traced<T> && std::same_as<T, Value<kind_of<T>()>>;
auto& operator+=(Variable auto& a, const Operand auto& b) { return a = a + b; }
auto& operator-=(Variable auto& a, const Operand auto& b) { return a = a - b; }
auto& operator*=(Variable auto& a, const Operand auto& b) { return a = a * b; }
auto& operator/=(Variable auto& a, const Operand auto& b) { return a = a / b; }

auto f32(const Traced auto& x) { return call<ToF32>("f32", x); }
auto i32(const Traced auto& x) { return call<ToI32>("i32", x); }
auto boolean(const Traced auto& x) { return call<ToBool>("bool", x); }

auto abs(const Traced auto& x) { return call<Number>("abs", x); }
auto sign(const Traced auto& x) { return call<Real>("sign", x); }
auto exp(const Traced auto& x) { return call<Real>("exp", x); }
auto exp2(const Traced auto& x) { return call<Real>("exp2", x); }
auto expm1(const Traced auto& x) { return call<Real>("expm1", x); }
auto log(const Traced auto& x) { return call<Real>("log", x); }
auto log2(const Traced auto& x) { return call<Real>("log2", x); }
auto log1p(const Traced auto& x) { return call<Real>("log1p", x); }
auto sqrt(const Traced auto& x) { return call<Real>("sqrt", x); }
auto rsqrt(const Traced auto& x) { return call<Real>("rsqrt", x); }
auto tanh(const Traced auto& x) { return call<Real>("tanh", x); }
auto sigmoid(const Traced auto& x) { return call<Real>("sigmoid", x); }
auto softplus(const Traced auto& x) { return call<Real>("softplus", x); }
auto erf(const Traced auto& x) { return call<Real>("erf", x); }
auto sin(const Traced auto& x) { return call<Real>("sin", x); }
auto cos(const Traced auto& x) { return call<Real>("cos", x); }
auto tan(const Traced auto& x) { return call<Real>("tan", x); }
auto floor(const Traced auto& x) { return call<Real>("floor", x); }
auto ceil(const Traced auto& x) { return call<Real>("ceil", x); }
auto round(const Traced auto& x) { return call<Real>("round", x); }

template <class A, OperandWith<A> B>
auto pow(const A& a, const B& b) {
  return call<Real>("pow", a, b);
}
template <class A, OperandWith<A> B>
auto min(const A& a, const B& b) {
  return call<Number>("min", a, b);
}
template <class A, OperandWith<A> B>
auto max(const A& a, const B& b) {
  return call<Number>("max", a, b);
}
template <class A, OperandWith<A> B>
auto floor_div(const A& a, const B& b) {
  return op<Int>(11, "//", a, b);
}
template <class A, OperandWith<A> B>
auto floor_mod(const A& a, const B& b) {
  return op<Int>(11, "%", a, b);
}
template <class A, OperandWith<A> B>
auto div(const A& a, const B& b) {
  return call<Int>("div", a, b);
}
template <class A, OperandWith<A> B>
auto rem(const A& a, const B& b) {
  return call<Int>("rem", a, b);
}
template <class X, class A, OperandWith<X, A> B>
auto clamp(const X& x, const A& low, const B& high) {
  return call<Number>("clamp", x, low, high);
}
template <class C, class X, OperandWith<C, X> Y>
auto select(const C& c, const X& x, const Y& y) {
  return call<Choice>("select", c, x, y);
}

}  // namespace fovea::traced

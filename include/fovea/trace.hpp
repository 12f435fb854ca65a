// Formulas from C++ lambdas. The lambda is called once, with symbolic values; what it does to them
// is printed in the formula language (docs/language.md), which every other part of Fovea reads.
//
//   fovea::Tensor slopes("slopes", fovea::f32, {fovea::H});
//   fovea::Scalar softcap("softcap", 30.0f);
//   auto mod = fovea::formula([&](auto score, auto b, auto h, auto q, auto k) {
//     return softcap * tanh(score / softcap) + slopes[h] * (k - q);
//   });
//   auto mask = fovea::mask([](auto b, auto h, auto q, auto k) { return q >= k && q - k < 1024; });
//   fovea::program(mod, mask);  // mod="..." mask="..." tensor="slopes:f32[H]" scalar="softcap:..."
//
// Operators and functions mean what they mean in the language, not in C++: `/` is always f32, `%`
// is the floor remainder, i32 wraps, && and || evaluate both sides. floor_div(a, b) is `a // b`;
// div and rem truncate. i32 turns into f32 if it meets one; f32(x), i32(x), boolean(x) cast. A
// C++ float or double is an f32 literal, an integer an i32 one; what C++ computes before a traced
// value is involved (1 / 2) stays C++. Instead of `if` and `?:` write select(c, x, y).
//
// Mistakes in types do not compile, except those with a captured value, whose type is known when
// the lambda runs: these throw std::invalid_argument, as bad names do. There is no global state.
// Header-only, and independent of the library.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "fovea/trace/operation.hpp"
#include "fovea/trace/text.hpp"
#include "fovea/trace/value.hpp"
#include "fovea/view.hpp"

namespace fovea {

// Types of values, for helper functions and variables: F32 total = 0.0f;
using F32 = traced::Value<traced::Kind::F32>;
using I32 = traced::Value<traced::Kind::I32>;
using Bool = traced::Value<traced::Kind::Bool>;
using Any = traced::Value<traced::Kind::Any>;

// Sizes of the attention problem, in formulas and as extents of captured tensors.
inline constexpr traced::Size B{"B"}, H{"H"}, Hkv{"Hkv"}, Sq{"Sq"}, Skv{"Skv"};

// Element types of captured tensors; what a load of one gives in formulas.
struct ElementType {
  const char* name;
  traced::Kind kind;
};
struct ElementF32 : ElementType {
  F32 operator()(const traced::Traced auto& x) const { return traced::f32(x); }
};
struct ElementI32 : ElementType {
  I32 operator()(const traced::Traced auto& x) const { return traced::i32(x); }
};
struct ElementBool : ElementType {
  Bool operator()(const traced::Traced auto& x) const { return traced::boolean(x); }
};
inline constexpr ElementF32 f32{{"f32", traced::Kind::F32}};
inline constexpr ElementI32 i32{{"i32", traced::Kind::I32}};
inline constexpr ElementBool boolean{{"bool", traced::Kind::Bool}};
inline constexpr ElementType f16{"f16", traced::Kind::F32}, bf16{"bf16", traced::Kind::F32},
    i64{"i64", traced::Kind::I32}, u8{"u8", traced::Kind::I32};

// For those who like to write fovea::tanh(x).
using traced::abs, traced::ceil, traced::clamp, traced::cos, traced::div, traced::erf, traced::exp,
    traced::exp2, traced::expm1, traced::floor, traced::floor_div, traced::floor_mod, traced::log,
    traced::log1p, traced::log2, traced::max, traced::min, traced::pow, traced::rem, traced::round,
    traced::rsqrt, traced::select, traced::sigmoid, traced::sign, traced::sin, traced::softplus,
    traced::sqrt, traced::tan, traced::tanh;

namespace traced {

// One extent of a captured tensor.
struct Extent {
  std::string text;

  Extent(Size size) : text(size.name) {}
  Extent(std::integral auto number) : text(std::to_string(number)) {
    if (std::cmp_less(number, 0)) refuse("an extent must not be negative, got " + text);
  }
};

inline constexpr std::size_t longest_name = 64;
inline constexpr std::array<std::string_view, 16> words{"score", "grad",  "b",   "h",  "q",   "k",
                                                        "B",     "H",     "Hkv", "Sq", "Skv", "let",
                                                        "true",  "false", "inf", "nan"};

inline void check_name(const std::string& name) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  const auto fits = [&](char c) { return letter(c) || digit(c); };
  if (name.empty() || digit(name[0]) || !std::ranges::all_of(name, fits)) {
    refuse("'" + name + "' is not a name: a letter or _, then letters, digits and _");
  }
  if (std::ranges::find(words, name) != words.end()) {
    refuse("'" + name + "' is a word of the language; choose another name");
  }
  if (name.size() > longest_name) {
    refuse("the name '" + name + "' has more than " + std::to_string(longest_name) + " characters");
  }
}

inline DeclarationPtr declare(Declaration declaration) {
  check_name(declaration.name);
  declaration.text = declaration.name + ":" + declaration.text;
  return std::make_shared<const Declaration>(std::move(declaration));
}

}  // namespace traced

// A captured tensor: here a name, an element type and extents. Data is bound per call, to its name.
// (Views: memory without a name, such as q: Tensor::bhsd(data, b, h, s, d).)
class Tensor : public Views {
 public:
  static constexpr std::size_t largest_rank = 8;

  // Extents are numbers or sizes: {fovea::H, 64}; {} for a tensor of rank 0.
  Tensor(std::string name, ElementType type, const std::vector<traced::Extent>& extents) {
    if (extents.size() > largest_rank) {
      traced::refuse("tensor '" + name + "' has more than " + std::to_string(largest_rank) +
                     " dimensions");
    }
    std::string text = std::string(type.name) + "[";
    for (const auto& extent : extents) text += (text.back() == '[' ? "" : ",") + extent.text;
    declaration_ = traced::declare({true, type.kind, extents.size(), std::move(name), text + "]"});
  }

  // The element at these indices, one per extent: slopes[h], table(h, q - k), constant().
  Any operator[](const traced::Operand auto& i) const { return (*this)(i); }
  template <traced::Operand... Index>
  Any operator()(const Index&... i) const {
    static_assert((traced::converts(traced::kind_of<Index>(), traced::Kind::I32) && ...),
                  "fovea: an index must be i32; cast with i32(x)");
    if (sizeof...(i) != declaration_->rank) {
      traced::refuse("tensor '" + declaration_->name + "' has " +
                     std::to_string(declaration_->rank) + " dimensions, got " +
                     std::to_string(sizeof...(i)) + " indices");
    }
    std::vector<traced::NodePtr> at{traced::converted(traced::node_of(i), traced::Kind::I32)...};
    return Any(traced::new_node(traced::Form::Load, declaration_->kind, traced::atom_level,
                                declaration_->name, std::move(at), declaration_));
  }

  const std::string& name() const { return declaration_->name; }
  const std::string& declaration() const { return declaration_->text; }  // slopes:f32[H]

 private:
  traced::DeclarationPtr declaration_;
};

// A captured number, bound per call; a value in formulas.
class Scalar : public Any {
 public:
  explicit Scalar(const std::string& name) : Scalar(name, "f32", traced::Kind::F32) {}
  Scalar(const std::string& name, ElementF32) : Scalar(name) {}
  Scalar(const std::string& name, ElementI32) : Scalar(name, "i32", traced::Kind::I32) {}
  Scalar(const std::string& name, std::floating_point auto value)
      : Scalar(name, "f32=" + traced::number_text(value), traced::Kind::F32) {}
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  Scalar(const std::string& name, T value)
      : Scalar(name, "i32=" + traced::number_text(value), traced::Kind::I32) {}

  const std::string& name() const { return node->captured->name; }
  const std::string& declaration() const { return node->captured->text; }  // softcap:f32=30.0

 private:
  Scalar(const std::string& name, std::string text, traced::Kind type)
      : Any(traced::new_node(traced::Form::Leaf, type, traced::atom_level, name, {},
                             traced::declare({false, type, 0, name, std::move(text)}))) {}
};

// A traced formula: plain text, independent of the lambda and of what it captured.
class Formula {
 public:
  Formula(std::string key, const traced::ValueBase& value) : key_(std::move(key)) {
    traced::Printer printer(*value.node);
    text_ = printer.text();
    captured_ = printer.captured();
  }

  const std::string& key() const { return key_; }    // mod, mask or bprop
  const std::string& text() const { return text_; }  // let t0 = score / softcap; ...
  const std::vector<traced::DeclarationPtr>& captured() const { return captured_; }

  // tensor="slopes:f32[H]" and so on, in the order of first use.
  std::vector<std::string> declarations() const {
    std::vector<std::string> out;
    for (const auto& captured : captured_) out.push_back(captured->word());
    return out;
  }

 private:
  std::string key_, text_;
  std::vector<traced::DeclarationPtr> captured_;
};

namespace traced {

template <class Result, class F, class... Leaves>
Formula trace(const char* key, F& lambda, const Leaves&... leaves) {
  static_assert(std::is_invocable_v<F&, Leaves...>,
                "fovea: a formula's lambda takes (score, b, h, q, k), a mask's (b, h, q, k), a "
                "bprop's (score, grad, b, h, q, k)");
  using Returned = std::remove_cvref_t<std::invoke_result_t<F&, Leaves...>>;
  static_assert(std::convertible_to<Returned, Result>,
                "fovea: a formula or bprop returns a number, a mask a condition (x != 0)");
  if constexpr (std::convertible_to<Returned, Result>) {
    return Formula(key, Result(lambda(leaves...)));
  }
}

template <class T>
T leaf(const char* name) {
  return T(new_node(Form::Leaf, T::kind, atom_level, name));
}

}  // namespace traced

// The modified score: [](auto score, auto b, auto h, auto q, auto k) { return ...; }
template <class F>
Formula formula(F&& lambda) {
  using traced::leaf;
  return traced::trace<F32>("mod", lambda, leaf<F32>("score"), leaf<I32>("b"), leaf<I32>("h"),
                            leaf<I32>("q"), leaf<I32>("k"));
}

// Whether a score is kept: [](auto b, auto h, auto q, auto k) { return ...; }
template <class F>
Formula mask(F&& lambda) {
  using traced::leaf;
  return traced::trace<Bool>("mask", lambda, leaf<I32>("b"), leaf<I32>("h"), leaf<I32>("q"),
                             leaf<I32>("k"));
}

// The gradient by the score before the modifier, if it is not to be derived:
// [](auto score, auto grad, auto b, auto h, auto q, auto k) { return ...; }
template <class F>
Formula bprop(F&& lambda) {
  using traced::leaf;
  return traced::trace<F32>("bprop", lambda, leaf<F32>("score"), leaf<F32>("grad"), leaf<I32>("b"),
                            leaf<I32>("h"), leaf<I32>("q"), leaf<I32>("k"));
}

// The whole program as a line, mod="..." mask="..." tensor="..." scalar="...". What two formulas
// capture under one name must be declared alike.
inline std::string program(const std::vector<Formula>& formulas) {
  std::string line;
  const auto add = [&](const std::string& word) { line += (line.empty() ? "" : " ") + word; };
  std::vector<std::string> keys;
  std::vector<traced::DeclarationPtr> captured;
  for (const Formula& one : formulas) {
    if (std::ranges::find(keys, one.key()) != keys.end()) {
      traced::refuse("a program has one " + one.key() + ", got two");
    }
    keys.push_back(one.key());
    add(one.key() + "=\"" + one.text() + "\"");
    for (const auto& declaration : one.captured()) traced::collect(captured, declaration);
  }
  for (const auto& declaration : captured) add(declaration->word());
  return line;
}
template <std::same_as<Formula>... Formulas>
std::string program(const Formulas&... formulas) {
  return program(std::vector<Formula>{formulas...});
}

}  // namespace fovea

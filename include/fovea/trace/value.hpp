// Symbolic values: what the lambdas of fovea/trace.hpp compute with. A value is a node of a graph
// of operations. Its type is a C++ type if it is known when the lambda is compiled, else (for a
// captured value) it is known when the lambda runs. fovea/trace/operation.hpp makes nodes,
// fovea/trace/text.hpp prints them.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace fovea::traced {

// The type of a value. Any: known when the lambda runs (a captured value). Wrong: no such value.
enum class Kind : std::uint8_t { F32, I32, Bool, Any, Wrong };

constexpr const char* kind_name(Kind kind) {
  return kind == Kind::F32 ? "f32" : kind == Kind::I32 ? "i32" : "bool";
}

[[noreturn]] inline void refuse(const std::string& why) {
  throw std::invalid_argument("fovea: " + why);
}

// A captured tensor or scalar. Two of one name must have the same text.
struct Declaration {
  bool is_tensor = false;
  Kind kind = Kind::F32;
  std::size_t rank = 0;
  std::string name;
  std::string text;  // slopes:f32[H]

  // As it stands in a program line.
  std::string word() const { return (is_tensor ? "tensor=\"" : "scalar=\"") + text + '"'; }
};
using DeclarationPtr = std::shared_ptr<const Declaration>;

enum class Form : std::uint8_t { Leaf, Call, Load, Prefix, Infix };

// How tightly operators bind, as in C: 2 for || up to 11 for *, then these two.
inline constexpr int prefix_level = 12, atom_level = 13;

struct Node;
using NodePtr = std::shared_ptr<Node>;

struct Node {
  Form form = Form::Leaf;
  Kind kind = Kind::F32;  // never Any
  int level = atom_level;
  std::string text;  // the leaf, operator, function or tensor
  std::vector<NodePtr> args;
  DeclarationPtr captured;

  ~Node() {  // without recursion: a chain of operations may be long
    while (!args.empty()) {
      const NodePtr last = std::move(args.back());
      args.pop_back();
      if (last.use_count() != 1) continue;
      std::ranges::move(last->args, std::back_inserter(args));
      last->args.clear();
    }
  }
};

inline NodePtr new_node(Form form, Kind kind, int level, std::string text,
                        std::vector<NodePtr> args = {}, DeclarationPtr captured = {}) {
  return NodePtr(
      new Node{form, kind, level, std::move(text), std::move(args), std::move(captured)});
}

// Numbers as texts that read back bit for bit.
inline std::string number_text(bool value) { return value ? "true" : "false"; }
inline std::string number_text(std::integral auto value) {
  if (!std::in_range<std::int32_t>(value)) refuse(std::to_string(value) + " does not fit i32");
  return std::to_string(value);
}
inline std::string number_text(std::floating_point auto value) {
  const float real = static_cast<float>(value);
  if (std::isnan(real)) return "nan";
  if (std::isinf(real) && !std::isinf(value)) refuse(std::to_string(value) + " does not fit f32");
  std::array<char, 64> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), real).ptr;
  const std::string text(buffer.data(), end);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;  // n: inf
}

// A size of the attention problem: an i32 in formulas, an extent in declarations.
struct Size {
  const char* name;
};

struct ValueBase {
  NodePtr node;
};

template <class T>
concept Traced = std::derived_from<T, ValueBase> || std::same_as<T, Size>;
template <class T>
concept Operand = Traced<T> || std::is_arithmetic_v<T>;
// One operand of several, of which some are traced: a call with none of them is not ours.
template <class T, class... Others>
concept OperandWith =
    Operand<T> && (Operand<Others> && ...) && (Traced<T> || ... || Traced<Others>);

template <Operand T>
constexpr Kind kind_of() {
  if constexpr (std::derived_from<T, ValueBase>) {
    return T::kind;
  } else {
    return std::same_as<T, bool> ? Kind::Bool : std::floating_point<T> ? Kind::F32 : Kind::I32;
  }
}

template <Operand T>
NodePtr node_of(const T& x) {
  if constexpr (std::derived_from<T, ValueBase>) {
    return x.node;
  } else if constexpr (std::same_as<T, Size>) {
    return new_node(Form::Leaf, Kind::I32, atom_level, x.name);
  } else {
    const std::string text = number_text(x);
    const int level = text[0] == '-' ? prefix_level : atom_level;
    return new_node(Form::Leaf, kind_of<T>(), level, text);
  }
}

constexpr bool converts(Kind from, Kind to) {
  return from == to || from == Kind::Any || to == Kind::Any ||
         (from == Kind::I32 && to == Kind::F32);
}

// The node as a value of type `to`: as it is, or i32 widened to f32.
inline NodePtr converted(NodePtr node, Kind to) {
  if (to == Kind::Any || node->kind == to) return node;
  if (!converts(node->kind, to)) {
    refuse("'" + node->text + "' gives " + kind_name(node->kind) + " where " + kind_name(to) +
           " is expected");
  }
  return new_node(Form::Call, to, atom_level, "f32", {std::move(node)});
}

template <Kind K>
struct Value : ValueBase {
  static constexpr Kind kind = K;

  explicit Value(NodePtr of) : ValueBase{std::move(of)} {}
  template <Operand T>
    requires(converts(kind_of<T>(), K))
  Value(const T& x) : ValueBase{converted(node_of(x), K)} {}

  template <std::same_as<bool> T>
  explicit operator T() const {
    static_assert(K == Kind::Wrong,
                  "fovea: a traced value is not known yet; instead of if, ?:, while, std::min and "
                  "std::max use select, min and max of fovea");
    return false;
  }
};

}  // namespace fovea::traced

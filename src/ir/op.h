// Operations as data: what ops.def says about each. Rules per operation are in the files about them
// (arith.h, diff.cpp, interval.cpp ...), never here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fovea::ir {

// The types that formulas compute with. Tensors in memory have a fovea::DType.
enum class Type : std::uint8_t { F32, I32, Bool };

constexpr std::string_view type_name(Type type) {
  switch (type) {
    case Type::F32: return "f32";
    case Type::I32: return "i32";
    case Type::Bool: return "bool";
  }
  return "?";
}

enum class Op : std::uint8_t {
#define FOVEA_OP(name, text, form, signature, flags) name,
#include "ir/ops.def"
#undef FOVEA_OP
};

// The labels of all leaves, loads and constants, for a switch that has one rule for them:
// `FOVEA_LEAF_CASES: return {};`
#define FOVEA_LEAF_CASES \
  case Op::Score:        \
  case Op::Grad:         \
  case Op::ScalarF:      \
  case Op::ScalarI:      \
  case Op::LoadF:        \
  case Op::LoadI:        \
  case Op::LoadB:        \
  case Op::IndexB:       \
  case Op::IndexH:       \
  case Op::IndexQ:       \
  case Op::IndexK:       \
  case Op::SizeB:        \
  case Op::SizeH:        \
  case Op::SizeHkv:      \
  case Op::SizeSq:       \
  case Op::SizeSkv:      \
  case Op::ConstF:       \
  case Op::ConstI:       \
  case Op::ConstB

enum class Form : std::uint8_t { Leaf, Const, Scalar, Load, Infix, Prefix, Call, Choice };
enum class OpFlag : std::uint8_t { None, Commutes };

struct OpInfo {
  Op op;
  std::string_view name;  // as in ops.def, for tests and dumps
  std::string_view text;
  Form form;
  std::string_view signature;
  OpFlag flag;

  // A load has one i32 argument per index instead.
  constexpr std::size_t arity() const { return signature.find('>'); }
  constexpr Type argument(std::size_t i) const { return type_of(signature[i]); }
  constexpr Type result() const { return type_of(signature.back()); }
  constexpr bool commutes() const { return flag == OpFlag::Commutes; }

 private:
  static constexpr Type type_of(char c) {
    return c == 'f' ? Type::F32 : c == 'i' ? Type::I32 : Type::Bool;
  }
};

inline constexpr std::array all_ops{
#define FOVEA_OP(name, text, form, signature, flags) \
  OpInfo{Op::name, #name, text, Form::form, signature, OpFlag::flags},
#include "ir/ops.def"
#undef FOVEA_OP
};

inline constexpr std::size_t op_count = all_ops.size();

// f32(x), i32(x), bool(x): called by the name of a type. Their operand is never widened.
constexpr bool is_cast_text(std::string_view text) {
  return text == "f32" || text == "i32" || text == "bool";
}

constexpr const OpInfo& info(Op op) { return all_ops[static_cast<std::size_t>(op)]; }

}  // namespace fovea::ir

#include "engines/jit/render_op.h"

#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>

namespace fovea::jit {
namespace {

using ir::Node;
using ir::Op;

using Args = std::span<const std::string>;

std::string call(std::string_view function, Args args) {
  std::string out(function);
  out += '(';
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (i > 0) out += ", ";
    out += args[i];
  }
  return out + ')';
}

std::string infix(Args args, std::string_view between) {
  return args[0] + ' ' + std::string(between) + ' ' + args[1];
}

// n if y is 2^n.
int power_of_two(const Node& y) {
  if (y.op() != Op::ConstI || y.int_value() <= 0) return -1;
  const auto value = static_cast<std::uint32_t>(y.int_value());
  return std::has_single_bit(value) ? std::countr_zero(value) : -1;
}

std::string floor_div(const Node& node, Args args) {
  const int shift = power_of_two(*node.arg(1));
  return shift < 0 ? call("arith::floor_div", args) : args[0] + " >> " + std::to_string(shift);
}

std::string floor_mod(const Node& node, Args args) {
  const int shift = power_of_two(*node.arg(1));
  if (shift < 0) return call("arith::floor_mod", args);
  return args[0] + " & " + std::to_string((std::int64_t{1} << shift) - 1);
}

}  // namespace

std::string float_text(float value) {
  char text[40];
  if (std::isfinite(value)) {
    std::snprintf(text, sizeof text, "%af", static_cast<double>(value));
  } else {
    std::snprintf(text, sizeof text, "float_of_bits(0x%08xu)", std::bit_cast<unsigned>(value));
  }
  return text;
}

std::string int_text(std::int32_t value) {
  if (value == std::numeric_limits<std::int32_t>::min()) return "(-2147483647 - 1)";
  return std::to_string(value);
}

std::string constant_text(const Node& node) {
  switch (node.type()) {
    case ir::Type::F32: return float_text(node.float_value());
    case ir::Type::I32: return int_text(node.int_value());
    case ir::Type::Bool: return node.bool_value() ? "true" : "false";
  }
  return {};
}

std::string_view type_text(ir::Type type) {
  switch (type) {
    case ir::Type::F32: return "float";
    case ir::Type::I32: return "int";
    case ir::Type::Bool: return "bool";
  }
  return {};
}

std::string_view captured_type_text(DType type) {
  switch (type) {
    case DType::F32: return "captured::StoredF32";
    case DType::F16: return "captured::StoredF16";
    case DType::BF16: return "captured::StoredBF16";
    case DType::F64: break;  // refused before
    case DType::I32: return "captured::StoredI32";
    case DType::I64: return "captured::StoredI64";
    case DType::U8: return "captured::StoredU8";
    case DType::Bool: return "captured::StoredBool";
  }
  return {};
}

std::string operation_text(const Node& node, bool exact, Args args,
                           const FunctionAccuracy& functions) {
  const auto function = [&](std::string_view name) {
    const std::string_view space = exact ? "exact::" : functions.precise ? "precise::" : "fast::";
    return call(std::string(space) + std::string(name), args);
  };
  const bool coarse = !exact && !functions.precise && functions.coarse_tanh;
  switch (node.op()) {
    case Op::AddF: return exact ? call("add_rn", args) : infix(args, "+");
    case Op::AddI: return call("arith::add", args);
    case Op::SubF: return exact ? call("sub_rn", args) : infix(args, "-");
    case Op::SubI: return call("arith::subtract", args);
    case Op::MulF: return exact ? call("mul_rn", args) : infix(args, "*");
    case Op::MulI: return call("arith::multiply", args);
    case Op::DivF: {
      if (exact) return call("div_rn", args);
      const bool inverse =
          functions.precise && node.arg(0)->is_const() && node.arg(0)->float_value() == 1.0f;
      return inverse ? call("precise::reciprocal", args.subspan(1)) : function("divide");
    }
    case Op::FloorDiv: return floor_div(node, args);
    case Op::FloorMod: return floor_mod(node, args);
    case Op::TruncDiv: return call("arith::trunc_div", args);
    case Op::TruncRem: return call("arith::trunc_rem", args);
    case Op::NegF: return "-" + args[0];
    case Op::NegI: return call("arith::negate", args);
    case Op::AbsF:
    case Op::AbsI: return call("arith::absolute", args);
    case Op::SignF: return call("arith::sign", args);
    case Op::MinF:
    case Op::MinI: return call("arith::minimum", args);
    case Op::MaxF:
    case Op::MaxI: return call("arith::maximum", args);
    case Op::ClampF:
    case Op::ClampI: return call("arith::clamp", args);
    case Op::Exp: return function("exp");
    case Op::Exp2: return function("exp2");
    case Op::Expm1: return function("expm1");
    case Op::Log: return function("log");
    case Op::Log2: return function("log2");
    case Op::Log1p: return function("log1p");
    case Op::Sqrt: return function("sqrt");
    case Op::Rsqrt: return function("rsqrt");
    case Op::Pow: return function("power");
    case Op::Tanh: return coarse ? call("tanh_approx", args) : function("tanh");
    case Op::Sigmoid: {
      // If the operand is within -1 and 1, the result is not near 0, and its relative error is that
      // of tanh.
      const Op operand = node.arg(0)->op();
      const bool is_small = operand == Op::Sigmoid || operand == Op::Tanh;
      return coarse && is_small ? call("sigmoid_approx", args) : function("sigmoid");
    }
    case Op::Softplus: return function("softplus");
    case Op::Erf: return function("erf");
    case Op::Sin: return function("sin");
    case Op::Cos: return function("cos");
    case Op::Tan: return function("tan");
    case Op::Floor: return call("arith::floor_of", args);
    case Op::Ceil: return call("arith::ceil_of", args);
    case Op::Round: return call("arith::round_of", args);
    case Op::LtF:
    case Op::LtI: return infix(args, "<");
    case Op::LeF:
    case Op::LeI: return infix(args, "<=");
    case Op::EqF:
    case Op::EqI:
    case Op::EqB: return infix(args, "==");
    case Op::NeF:
    case Op::NeI:
    case Op::NeB: return infix(args, "!=");
    case Op::And: return infix(args, "&&");
    case Op::Or: return infix(args, "||");
    case Op::Not: return "!" + args[0];
    case Op::SelectF:
    case Op::SelectI:
    case Op::SelectB: return args[0] + " ? " + args[1] + " : " + args[2];
    case Op::BitAnd: return infix(args, "&");
    case Op::BitOr: return infix(args, "|");
    case Op::BitXor: return infix(args, "^");
    case Op::BitNot: return "~" + args[0];
    case Op::Shl: return call("arith::shift_left", args);
    case Op::Shr: return call("arith::shift_right", args);
    case Op::FloatOfInt: return call("static_cast<float>", args);
    case Op::FloatOfBool: return args[0] + " ? 1.0f : 0.0f";
    case Op::IntOfFloat: return call("arith::to_int", args);
    case Op::IntOfBool: return args[0] + " ? 1 : 0";
    case Op::BoolOfFloat: return args[0] + " != 0.0f";
    case Op::BoolOfInt:
      return args[0] + " != 0";
    FOVEA_LEAF_CASES:
      break;
  }
  return {};
}

}  // namespace fovea::jit

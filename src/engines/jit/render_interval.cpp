#include "engines/jit/render_interval.h"

#include <string_view>

namespace fovea::jit {

using ir::Op;

std::string interval_text(Op op, std::span<const std::string> args) {
  const auto call = [&](std::string_view function, std::string_view more = "") {
    std::string out = std::string(function) + "(";
    for (std::size_t i = 0; i < args.size(); ++i) out += (i > 0 ? ", " : "") + args[i];
    return out + std::string(more) + ")";
  };
  const auto wrapped = [&](std::string_view f) { return "ints::wrapped(" + call(f) + ")"; };
  const auto negated = [](const std::string& x) { return "bools::negated(" + x + ")"; };
  const auto difference = [&](std::string_view f) {
    return std::string(f) + "(" + call("ints::subtract") + ")";
  };
  // A function of the C library, named in device/math.h.
  const auto rising = [&](std::string_view f, std::string_view ends) {
    return "reals::increasing(exact::" + std::string(f) + ", " + args[0] + ", " +
           std::string(ends) + ")";
  };
  const auto rising_from = [&](std::string_view f, std::string_view start) {
    return "reals::increasing_from(exact::" + std::string(f) + ", " + args[0] + ", " +
           std::string(start) + ")";
  };
  const auto step = [&](std::string_view f) {
    return "reals::step(arith::" + std::string(f) + ", " + args[0] + ")";
  };
  switch (op) {
    case Op::AddF: return call("reals::add");
    case Op::AddI: return wrapped("ints::add");
    case Op::SubF: return call("reals::subtract");
    case Op::SubI: return wrapped("ints::subtract");
    case Op::MulF: return call("reals::multiply");
    case Op::MulI: return wrapped("ints::multiply");
    case Op::DivF: return call("reals::divide");
    case Op::FloorDiv: return call("ints::divide<true>");
    case Op::TruncDiv: return call("ints::divide<false>");
    case Op::FloorMod: return call("ints::remainder<true>");
    case Op::TruncRem: return call("ints::remainder<false>");
    case Op::NegF: return call("reals::negate");
    case Op::NegI: return "ints::wrapped(ints::subtract(IntInterval::of(0), " + args[0] + "))";
    case Op::AbsF: return call("reals::absolute");
    case Op::AbsI: return call("ints::absolute");
    case Op::SignF: return step("sign");
    case Op::MinF: return call("reals::minimum");
    case Op::MinI: return call("ints::minimum");
    case Op::MaxF: return call("reals::maximum");
    case Op::MaxI: return call("ints::maximum");
    case Op::ClampF: return call("reals::clamp");
    case Op::ClampI: return call("ints::clamp");
    case Op::Exp: return rising("exp", "0, infinity()");
    case Op::Exp2: return rising("exp2", "0, infinity()");
    case Op::Expm1: return rising("expm1", "-1, infinity()");
    case Op::Log: return rising_from("log", "0");
    case Op::Log2: return rising_from("log2", "0");
    case Op::Log1p: return rising_from("log1p", "-1");
    case Op::Sqrt: return rising_from("sqrt", "0");
    case Op::Rsqrt: return call("reals::rsqrt");
    case Op::Pow: return call("reals::power");
    case Op::Tanh: return rising("tanh", "-1, 1");
    case Op::Sigmoid: return rising("sigmoid", "0, 1");
    case Op::Softplus: return rising("softplus", "0, infinity()");
    case Op::Erf: return rising("erf", "-1, 1");
    case Op::Sin:
    case Op::Cos: return call("reals::sine");
    case Op::Tan: return "RealInterval{}";
    case Op::Floor: return step("floor_of");
    case Op::Ceil: return step("ceil_of");
    case Op::Round: return step("round_of");
    case Op::LtF: return call("reals::less");
    case Op::LtI: return difference("ints::less");
    case Op::LeF: return call("reals::less_equal");
    case Op::LeI: return difference("ints::less_equal");
    case Op::EqF: return call("reals::equal");
    case Op::EqI: return difference("ints::equal_zero");
    case Op::EqB: return call("bools::equal");
    case Op::NeF: return negated(call("reals::equal"));
    case Op::NeI: return negated(difference("ints::equal_zero"));
    case Op::NeB: return negated(call("bools::equal"));
    case Op::And: return call("bools::both");
    case Op::Or: return call("bools::either");
    case Op::Not: return call("bools::negated");
    case Op::SelectF:
    case Op::SelectI:
    case Op::SelectB: return call("bools::choose");
    case Op::BitAnd: return call("ints::bit_and");
    case Op::BitOr: return call("ints::bit_or");
    case Op::BitXor: return call("ints::bit_xor");
    case Op::BitNot: return call("ints::bit_not");
    case Op::Shl: return call("ints::shift_left");
    case Op::Shr: return call("ints::shift_right");
    case Op::FloatOfInt: return call("reals::from_int");
    case Op::FloatOfBool: return call("bools::to_real");
    case Op::IntOfFloat: return call("reals::to_int");
    case Op::IntOfBool: return call("bools::to_int");
    case Op::BoolOfFloat: return negated(call("reals::equal", ", RealInterval::of(0)"));
    case Op::BoolOfInt:
      return negated(call("ints::equal_zero"));
    FOVEA_LEAF_CASES:
      break;
  }
  return {};
}

}  // namespace fovea::jit

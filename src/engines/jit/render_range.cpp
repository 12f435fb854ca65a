#include "engines/jit/render_range.h"

#include <algorithm>
#include <string_view>

#include "engines/jit/device/shared_layout.h"
#include "engines/jit/render_op.h"
#include "ir/build.h"
#include "ir/modifier.h"
#include "ir/range_code.h"

namespace fovea::jit {
namespace {

using ir::Op;
using ir::RangeStep;
using ir::Type;

std::string_view set_text(Type type) {
  switch (type) {
    case Type::F32: return "RealInterval";
    case Type::I32: return "IntInterval";
    case Type::Bool: return "BoolSet";
  }
  return {};
}

std::string only(Type type, const std::string& value) {
  return std::string(set_text(type)) + "::of(" + value + ")";
}

std::string box_side(const std::string& side) {
  return "IntInterval{box." + side + "_first, box." + side + "_last}";
}

// The index of a load that changes along a tile, if exactly one does: it may have a summary. Else
// -1.
int changing_index(const ir::Node& load) {
  int found = -1;
  for (std::size_t i = 0; i < load.args().size(); ++i) {
    if (!any(load.arg(i)->depends(), ir::Depends::Q | ir::Depends::K)) continue;
    if (found >= 0) return -1;
    found = static_cast<int>(i);
  }
  return found;
}

// Sets are named by their step: x7, and broken7 if an i32 sum in it may have wrapped.
class ClassifyText {
 public:
  ClassifyText(const ir::Program& program, const ir::RangeCode& code, WordLayout& layout,
               std::vector<Summary>& summaries)
      : program_(program), code_(code), layout_(layout), summaries_(summaries) {}

  std::string run() {
    line(
        "static FOVEA_DEVICE TileClass classify(const Arguments& a, const Head& head, const Box& box) {");
    for (std::size_t i = 0; i < code_.steps.size(); ++i) step(code_.steps[i], i);
    line("  if (" + name(code_.roots[0]) + ".never()) return TileClass::empty();");
    std::string mixed;
    for (std::size_t i = 1; i < code_.roots.size(); ++i) {
      const std::string bit = std::to_string(1u << (i - 1)) + "u";
      mixed += (i > 1 ? " | " : "") + std::string("(") + name(code_.roots[i]) +
               ".always() ? 0u : " + bit + ")";
    }
    line("  return TileClass{" + mixed + "};");
    line("}");
    return std::move(out_);
  }

 private:
  using Kind = RangeStep::Kind;

  void line(const std::string& text) { out_ += "  " + text + "\n"; }
  static std::string name(std::size_t step) { return "x" + std::to_string(step); }
  static std::string broken(std::size_t step) { return "broken" + std::to_string(step); }

  std::span<const std::uint32_t> operands(const RangeStep& step) const {
    return std::span(code_.operands).subspan(step.first_operand, step.operand_count);
  }

  void define(std::size_t i, const std::string& value) {
    const Type type = code_.steps[i].node->type();
    line("  const " + std::string(set_text(type)) + " " + name(i) + " = " + value + ";");
  }

  void step(const RangeStep& step, std::size_t i) {
    switch (step.kind) {
      case Kind::Leaf: define(i, leaf(*step.node)); break;
      case Kind::Load: load(step, i); break;
      case Kind::Plain: define(i, plain(step)); break;
      case Kind::Sum: sum(step, i); break;
      case Kind::Compare: compare(step, i); break;
      case Kind::Modulo: modulo(step, i); break;
    }
  }

  std::string leaf(const ir::Node& node) const {
    const auto scalar = [&](const char* convert) {
      return only(node.type(), std::string(convert) + "(captured::scalar_bits(a.words + " +
                                   std::to_string(layout_.scalars[node.slot()]) + "))");
    };
    switch (node.op()) {
      case Op::IndexB: return only(Type::I32, "head.b");
      case Op::IndexH: return box_side("h");
      case Op::IndexQ: return box_side("q");
      case Op::IndexK: return box_side("k");
      case Op::SizeB: return only(Type::I32, "head.B");
      case Op::SizeH: return only(Type::I32, "head.H");
      case Op::SizeHkv: return only(Type::I32, "head.Hkv");
      case Op::SizeSq: return only(Type::I32, "head.Sq");
      case Op::SizeSkv: return only(Type::I32, "head.Skv");
      case Op::ScalarF: return scalar("float_of_bits");
      case Op::ScalarI: return scalar("static_cast<int>");
      case Op::ConstF:
      case Op::ConstI:
      case Op::ConstB: return only(node.type(), constant_text(node));
      default: return "{}";  // score and grad: anything
    }
  }

  std::string plain(const RangeStep& step) const {
    std::vector<std::string> args;
    for (const std::uint32_t operand : operands(step)) args.push_back(name(operand));
    return interval_text(step.node->op(), args);
  }

  // Whether some sum among the operands may have wrapped; empty: none can.
  std::string any_operand_broken(const RangeStep& step) const {
    std::string out;
    for (const std::uint32_t operand : operands(step)) {
      if (code_.steps[operand].kind != Kind::Sum) continue;
      out += (out.empty() ? "" : " || ") + broken(operand);
    }
    return out;
  }

  // In unbounded integers.
  std::string linear(const RangeStep& step) const {
    std::string out = "IntInterval::of(" + std::to_string(step.offset) + "LL)";
    for (std::uint32_t i = 0; i < step.term_count; ++i) {
      const ir::LinearTerm& term = code_.terms[step.first_term + i];
      const std::string x = name(term.unknown);
      const std::string times = std::to_string(term.coefficient) + "LL";
      out = term.coefficient == 1 ? "ints::add(" + out + ", " + x + ")"
            : term.coefficient == -1
                ? "ints::subtract(" + out + ", " + x + ")"
                : "ints::add(" + out + ", ints::scale(" + times + ", " + x + "))";
    }
    return out;
  }

  void sum(const RangeStep& step, std::size_t i) {
    const std::string exact = "sum" + std::to_string(i), before = any_operand_broken(step);
    line("  const IntInterval " + exact + " = " + linear(step) + ";");
    line("  const bool " + broken(i) + " = " + (before.empty() ? "" : before + " || ") + "!" +
         exact + ".fits_i32();");
    define(i, broken(i) + " ? " + plain(step) + " : " + exact);
  }

  void compare(const RangeStep& step, std::size_t i) {
    const std::string before = any_operand_broken(step);
    const std::string difference = linear(step);
    const std::string exact = step.node->op() == Op::LtI   ? "ints::less(" + difference + ")"
                              : step.node->op() == Op::LeI ? "ints::less_equal(" + difference + ")"
                              : step.node->op() == Op::EqI
                                  ? "ints::equal_zero(" + difference + ")"
                                  : "bools::negated(ints::equal_zero(" + difference + "))";
    define(i, before.empty() ? exact : before + " ? " + plain(step) + " : " + exact);
  }

  void modulo(const RangeStep& step, std::size_t i) {
    const std::string rest = name(step.y);
    std::string equal = "ints::equals_modulo(" + name(step.x) + ", " +
                        std::to_string(step.modulus) + "LL, " + rest + ".lo)";
    if (step.node->op() != Op::EqI) equal = "bools::negated(" + equal + ")";
    define(i, rest + ".single() ? " + equal + " : " + plain(step));
  }

  void load(const RangeStep& step, std::size_t i) {
    const ir::Node& node = *step.node;
    const std::string indices = "index" + std::to_string(i);
    const std::size_t rank = node.args().size();
    std::string list;
    for (const std::uint32_t operand : operands(step)) {
      list += (list.empty() ? "" : ", ") + name(operand);
    }
    line("  const IntInterval " + indices + "[" + std::to_string(std::max<std::size_t>(rank, 1)) +
         "] = {" + list + "};");
    const int along = changing_index(node);
    const std::string table =
        along < 0 ? "0" : "a.words[" + std::to_string(summary_of(node.slot(), along)) + "]";
    const std::string type(captured_type_text(program_.tensors()[node.slot()].dtype));
    define(i, "captured::range<" + type + ", " + std::to_string(rank) + ">(a.words + " +
                  std::to_string(layout_.tensors[node.slot()]) + ", " + indices + ", " +
                  std::to_string(along) + ", " + table + ")");
  }

  // The word with the address of a summary's table.
  int summary_of(std::uint32_t slot, int index) {
    const auto same = [&](const Summary& s) { return s.slot == slot && s.index == index; };
    const auto found = std::ranges::find_if(summaries_, same);
    if (found != summaries_.end()) return found->address;
    summaries_.push_back({slot, index, layout_.count++});
    return summaries_.back().address;
  }

  const ir::Program& program_;
  const ir::RangeCode& code_;
  WordLayout& layout_;
  std::vector<Summary>& summaries_;
  std::string out_;
};

// The operands of a mask's outermost `&&`: `a && b && c` has three parts.
void add_parts(const ir::Expr& mask, std::vector<ir::Expr>& parts) {
  if (mask->op() != Op::And) return parts.push_back(mask);
  for (const ir::Expr& arg : mask->args()) add_parts(arg, parts);
}

}  // namespace

Classifier::Classifier(const ir::Program& program) : program_(program) {
  const ir::Expr mask = program.mask() ? program.mask() : ir::constant(true);
  const ir::Expr hidden =
      program.mod() ? ir::always_minus_infinity(program.mod()) : ir::constant(false);
  formulas_ = {and_(mask, not_(hidden))};
  add_parts(mask, formulas_);
  // The last part has what is left.
  while (formulas_.size() > 1 + device::most_mask_parts) {
    const ir::Expr last = formulas_.back();
    formulas_.pop_back();
    formulas_.back() = and_(formulas_.back(), last);
  }
}

bool Classifier::classifies() const { return formulas_[0] != ir::constant(true); }

std::string Classifier::text(WordLayout& layout, std::vector<Summary>& summaries) const {
  const ir::RangeCode code = ir::build_range_code(formulas_);
  return ClassifyText(program_, code, layout, summaries).run();
}

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

#include "ir/range_code.h"

#include <algorithm>
#include <cstdlib>

#include "ir/topology.h"

namespace fovea::ir {
namespace {

using Kind = RangeStep::Kind;

bool is_equality(Op op) { return op == Op::EqI || op == Op::NeI; }
bool is_comparison(Op op) { return op == Op::LtI || op == Op::LeI || is_equality(op); }

// x % m with a constant m > 0.
bool is_modulo(const Node& node) {
  return node.op() == Op::FloorMod && node.arg(1)->op() == Op::ConstI &&
         node.arg(1)->int_value() > 0;
}

struct LinearForm {
  static constexpr std::int64_t largest_coefficient = std::int64_t{1} << 20;

  std::vector<LinearTerm> terms;  // by unknown, each once, no zero coefficient
  std::int64_t offset = 0;

  static LinearForm unknown(std::uint32_t number) { return {{{1, number}}, 0}; }
  static LinearForm constant(std::int64_t value) { return {{}, value}; }

  // Small enough that its value over i32 unknowns, and its sums with another such form, stay far
  // inside 64 bits: 16 * 2^20 * 2^31 = 2^55.
  bool small() const {
    constexpr std::size_t most_terms = 16;
    constexpr std::int64_t largest_offset = std::int64_t{1} << 40;
    return terms.size() <= most_terms && std::abs(offset) <= largest_offset &&
           std::ranges::all_of(terms, [](const LinearTerm& term) {
             return std::abs(term.coefficient) <= largest_coefficient;
           });
  }
};

// ca * a + cb * b; both forms small, ca and cb at most largest_coefficient.
LinearForm combine(std::int64_t ca, const LinearForm& a, std::int64_t cb, const LinearForm& b) {
  LinearForm out{{}, ca * a.offset + cb * b.offset};
  std::vector<LinearTerm> all;
  for (const LinearTerm& term : a.terms) all.push_back({ca * term.coefficient, term.unknown});
  for (const LinearTerm& term : b.terms) all.push_back({cb * term.coefficient, term.unknown});
  std::ranges::sort(all, {}, &LinearTerm::unknown);
  for (const LinearTerm& term : all) {
    if (!out.terms.empty() && out.terms.back().unknown == term.unknown) {
      out.terms.back().coefficient += term.coefficient;
    } else {
      out.terms.push_back(term);
    }
  }
  std::erase_if(out.terms, [](const LinearTerm& term) { return term.coefficient == 0; });
  return out;
}

class Builder {
 public:
  RangeCode run(std::span<const Expr> roots) {
    const Order order = operands_first(roots);
    for (const Node* node : order.nodes) {
      RangeStep step;
      step.node = node;
      step.first_operand = static_cast<std::uint32_t>(code_.operands.size());
      step.operand_count = static_cast<std::uint32_t>(node->args().size());
      for (const Expr& arg : node->args()) code_.operands.push_back(order.number.find(arg.get()));
      forms_.push_back(LinearForm::unknown(static_cast<std::uint32_t>(code_.steps.size())));
      choose_kind(step);
      code_.steps.push_back(step);
    }
    for (const Expr& root : roots) code_.roots.push_back(order.number.find(root.get()));
    code_.kept.assign(roots.begin(), roots.end());
    return std::move(code_);
  }

 private:
  std::uint32_t operand(const RangeStep& step, std::size_t i) const {
    return code_.operands[step.first_operand + i];
  }
  const LinearForm& form(const RangeStep& step, std::size_t i) const {
    return forms_[operand(step, i)];
  }

  void choose_kind(RangeStep& step) {
    const Node& node = *step.node;
    if (info(node.op()).form == Form::Load) {
      step.kind = Kind::Load;
      step.load = static_cast<std::uint32_t>(code_.loads.size());
      code_.loads.push_back(Expr::share(&node));
    } else if (node.args().empty()) {
      step.kind = Kind::Leaf;
      if (node.op() == Op::ConstI) forms_.back() = LinearForm::constant(node.int_value());
    } else if (is_comparison(node.op())) {
      choose_comparison(step);
    } else {
      choose_sum(step);
    }
  }

  void choose_sum(RangeStep& step) {
    static const LinearForm zero;
    LinearForm sum;
    switch (step.node->op()) {
      case Op::AddI: sum = combine(1, form(step, 0), 1, form(step, 1)); break;
      case Op::SubI: sum = combine(1, form(step, 0), -1, form(step, 1)); break;
      case Op::NegI: sum = combine(-1, form(step, 0), 0, zero); break;
      case Op::MulI: {
        const Node& factor = *step.node->arg(1);
        if (factor.op() != Op::ConstI) return;
        const std::int64_t times = factor.int_value();
        if (std::abs(times) > LinearForm::largest_coefficient) return;
        sum = combine(times, form(step, 0), 0, zero);
        break;
      }
      default: return;  // everything else is an unknown of its own
    }
    if (!sum.small()) return;
    step.kind = Kind::Sum;
    set_terms(step, sum);
    forms_.back() = std::move(sum);
  }

  void choose_comparison(RangeStep& step) {
    for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
      const Node& rest = *step.node->arg(side);
      if (!is_equality(step.node->op()) || !is_modulo(rest)) continue;
      step.kind = Kind::Modulo;
      step.x = operand(code_.steps[operand(step, side)], 0);
      step.y = operand(step, 1 - side);
      step.modulus = rest.arg(1)->int_value();
      return;
    }
    const LinearForm difference = combine(1, form(step, 0), -1, form(step, 1));
    if (!difference.small()) return;
    step.kind = Kind::Compare;
    set_terms(step, difference);
  }

  void set_terms(RangeStep& step, const LinearForm& linear) {
    step.first_term = static_cast<std::uint32_t>(code_.terms.size());
    step.term_count = static_cast<std::uint32_t>(linear.terms.size());
    step.offset = linear.offset;
    code_.terms.insert(code_.terms.end(), linear.terms.begin(), linear.terms.end());
  }

  RangeCode code_;
  std::vector<LinearForm> forms_;  // of every step so far
};

}  // namespace

RangeCode build_range_code(std::span<const Expr> roots) { return Builder().run(roots); }

}  // namespace fovea::ir

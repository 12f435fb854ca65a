#include "ir/modifier.h"

#include <limits>
#include <optional>
#include <vector>

#include "ir/build.h"
#include "ir/topology.h"

namespace fovea::ir {
namespace {

bool is_constant_in_row(const Expr& expr) {
  return !any(expr->depends(), Depends::K | Depends::Score | Depends::Grad);
}

// The terms of a sum.
struct Term {
  Expr value;
  bool negative = false;
};
void collect_terms(const Term& sum, std::vector<Term>& out) {
  const Op op = sum.value->op();
  if (op != Op::AddF && op != Op::SubF) {
    out.push_back(sum);
    return;
  }
  collect_terms({sum.value->arg(0), sum.negative}, out);
  collect_terms({sum.value->arg(1), sum.negative != (op == Op::SubF)}, out);
}

// f32(k - q), f32(q - k) or f32(k).
std::optional<SlopeTerm> as_distance(const Expr& expr) {
  if (expr->op() != Op::FloatOfInt) return std::nullopt;
  const Expr& x = expr->arg(0);
  if (x->op() == Op::IndexK) return SlopeTerm{constant(1.0f), 1, 0};
  if (x->op() != Op::SubI) return std::nullopt;
  const Op first = x->arg(0)->op(), second = x->arg(1)->op();
  if (first == Op::IndexK && second == Op::IndexQ) return SlopeTerm{constant(1.0f), 1, -1};
  if (first == Op::IndexQ && second == Op::IndexK) return SlopeTerm{constant(1.0f), -1, 1};
  return std::nullopt;
}

std::optional<SlopeTerm> as_line(const Expr& term) {
  if (auto line = as_distance(term)) return line;
  if (term->op() != Op::MulF) return std::nullopt;
  for (std::size_t i = 0; i < 2; ++i) {
    auto line = as_distance(term->arg(i));
    if (!line || !is_constant_in_row(term->arg(1 - i))) continue;
    line->slope = term->arg(1 - i);
    return line;
  }
  return std::nullopt;
}

}  // namespace

Expr plus_term(const Expr& sum, const Expr& value, bool negative) {
  if (!sum) return negative ? -value : value;
  return negative ? sum - value : sum + value;
}

RowShift split_row_shift(const Expr& mod) {
  std::vector<Term> terms;
  collect_terms({mod, false}, terms);
  RowShift out;
  for (const Term& term : terms) {
    if (is_constant_in_row(term.value)) {
      out.shift = plus_term(out.shift, term.value, term.negative);
      continue;
    }
    out.rest = plus_term(out.rest, term.value, term.negative);
    const auto line = out.line.slope ? std::nullopt : as_line(term.value);
    if (!line) {
      out.without_line = plus_term(out.without_line, term.value, term.negative);
      continue;
    }
    out.line = *line;
    if (term.negative) out.line.slope = -line->slope;
  }
  if (!out.rest) out.rest = constant(0.0f);  // constant in every row
  if (!out.shift) out.rest = mod;            // as it was written
  return out;
}

namespace {

// -inf comes from a constant, a captured value or a choice between them, and stays -inf if
// something less than +inf is added. Other operations are not followed: what they make of -inf
// depends on how they are computed.

constexpr float unbounded = std::numeric_limits<float>::infinity();

bool is_false(const Expr& e) { return e->op() == Op::ConstB && !e->bool_value(); }

bool uses_score(const Expr& e) { return any(e->depends(), Depends::Score | Depends::Grad); }

// x is -inf if `hidden` says so: is x + y?
Expr sum_hidden(const Expr& hidden, const Expr& y) {
  if (is_false(hidden) || uses_score(y)) return constant(false);
  return and_(hidden, y < constant(unbounded));
}

}  // namespace

Expr always_minus_infinity(const Expr& mod) {
  const Order order = operands_first({&mod, 1});
  std::vector<Expr> hidden;  // for every node so far: when it is -inf
  const auto of = [&](const Expr& e) { return hidden[order.number.find(e.get())]; };
  for (const Node* node : order.nodes) {
    const Expr x = Expr::share(node);
    Expr now = constant(false);
    if (x->op() == Op::ConstF || x->op() == Op::ScalarF || x->op() == Op::LoadF) {
      now = equal(x, constant(-unbounded));
    } else if (x->op() == Op::SelectF && !uses_score(x->arg(0))) {
      now = select(x->arg(0), of(x->arg(1)), of(x->arg(2)));
    } else if (x->op() == Op::AddF) {
      now = or_(sum_hidden(of(x->arg(0)), x->arg(1)), sum_hidden(of(x->arg(1)), x->arg(0)));
    } else if (x->op() == Op::SubF) {
      now = sum_hidden(of(x->arg(0)), -x->arg(1));
    }
    hidden.push_back(now);
  }
  return hidden.back();
}

}  // namespace fovea::ir

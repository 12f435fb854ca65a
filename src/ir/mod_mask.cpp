// -inf comes from a constant, a captured value or a choice between them, and stays -inf when
// something less than +inf is added. Nothing else is followed: what other operations make of -inf
// depends on how they are computed, and engines need only agree on decisions.
#include "ir/mod_mask.h"

#include <limits>
#include <vector>

#include "ir/build.h"
#include "ir/topology.h"

namespace fovea::ir {
namespace {

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
    Expr where = constant(false);
    if (x->op() == Op::ConstF || x->op() == Op::ScalarF || x->op() == Op::LoadF) {
      where = equal(x, constant(-unbounded));
    } else if (x->op() == Op::SelectF && !uses_score(x->arg(0))) {
      where = select(x->arg(0), of(x->arg(1)), of(x->arg(2)));
    } else if (x->op() == Op::AddF) {
      where = or_(sum_hidden(of(x->arg(0)), x->arg(1)), sum_hidden(of(x->arg(1)), x->arg(0)));
    } else if (x->op() == Op::SubF) {
      where = sum_hidden(of(x->arg(0)), -x->arg(1));
    }
    hidden.push_back(where);
  }
  return hidden.back();
}

}  // namespace fovea::ir

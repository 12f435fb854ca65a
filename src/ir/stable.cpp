#include "ir/stable.h"

#include <array>

#include "ir/build.h"
#include "ir/diff.h"
#include "ir/simplify.h"
#include "ir/topology.h"

namespace fovea::ir {
namespace {

// c * tanh(x / c): its c and its u = x / c. Null if the node is something else.
struct SoftCap {
  Expr c, u;
};
SoftCap as_soft_cap(const Node& node) {
  if (node.op() != Op::MulF) return {};
  for (std::size_t i = 0; i < 2; ++i) {
    const Expr& c = node.arg(i);
    const Expr& other = node.arg(1 - i);
    if (other->op() != Op::Tanh || other->arg(0)->op() != Op::DivF) continue;
    if (other->arg(0)->arg(1) == c) return {c, other->arg(0)};
  }
  return {};
}

// The gradient by c of the soft cap alone, as ir/diff derives it. Null: c is no input.
Expr derived_by_cap(const Expr& soft_cap, const Expr& c) {
  const Gradients by = differentiate(soft_cap, leaf(Op::Grad));
  for (const LoadGradient& load : by.loads) {
    if (load.load == c) return simplify(load.gradient);
  }
  for (const ScalarGradient& scalar : by.scalars) {
    if (c->op() == Op::ScalarF && c->slot() == scalar.slot) {
      return simplify(scalar.gradient);
    }
  }
  return {};
}

// tanh(u) - u (1 - tanh(u)^2). Below 0.25 by its series, which is then 1e-7 off at most; above, the
// difference has lost less than four bits.
Expr stable_by_cap(const Expr& u) {
  constexpr std::array<float, 5> series{2.0f / 3, -8.0f / 15, 34.0f / 105, -496.0f / 2835,
                                        2764.0f / 31185};
  const Expr square = u * u;
  Expr sum = constant(series.back());
  for (std::size_t i = series.size() - 1; i-- > 0;) sum = sum * square + constant(series[i]);
  const Expr t = make(Op::Tanh, {u});
  const Expr difference = t - u * (constant(1.0f) - t * t);
  return select(square < constant(0.0625f), u * square * sum, difference);
}

}  // namespace

Expr stable_gradient(const Expr& mod, const Expr& gradient) {
  const Order order = operands_first({&mod, 1});
  for (const Node* node : order.nodes) {
    const SoftCap soft_cap = as_soft_cap(*node);
    if (!soft_cap.c) continue;
    const Expr derived = derived_by_cap(Expr::share(node), soft_cap.c);
    if (derived && derived == simplify(gradient)) {
      return leaf(Op::Grad) * stable_by_cap(soft_cap.u);
    }
  }
  return gradient;
}

}  // namespace fovea::ir

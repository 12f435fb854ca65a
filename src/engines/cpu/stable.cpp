#include "engines/cpu/stable.h"

#include <array>

#include "ir/build.h"
#include "ir/diff.h"
#include "ir/simplify.h"
#include "ir/topology.h"

namespace fovea::cpu {
namespace {

// c * tanh(x / c): its c and its u = x / c. Null where the node is something else.
struct SoftCap {
  ir::Expr c, u;
};
SoftCap as_soft_cap(const ir::Node& node) {
  if (node.op() != ir::Op::MulF) return {};
  for (std::size_t i = 0; i < 2; ++i) {
    const ir::Expr& c = node.arg(i);
    const ir::Expr& other = node.arg(1 - i);
    if (other->op() != ir::Op::Tanh || other->arg(0)->op() != ir::Op::DivF) continue;
    if (other->arg(0)->arg(1) == c) return {c, other->arg(0)};
  }
  return {};
}

// The gradient by c of the soft cap alone, as ir/diff derives it. Null: c is no input.
ir::Expr derived_by_cap(const ir::Expr& soft_cap, const ir::Expr& c) {
  const ir::Gradients by = ir::differentiate(soft_cap, ir::leaf(ir::Op::Grad));
  for (const ir::LoadGradient& load : by.loads) {
    if (load.load == c) return ir::simplify(load.gradient);
  }
  for (const ir::ScalarGradient& scalar : by.scalars) {
    if (c->op() == ir::Op::ScalarF && c->slot() == scalar.slot) {
      return ir::simplify(scalar.gradient);
    }
  }
  return {};
}

// tanh(u) - u (1 - tanh(u)^2). Below 0.25 by its series, which is then 1e-7 off at most; above, the
// difference has lost less than four bits.
ir::Expr stable_by_cap(const ir::Expr& u) {
  constexpr std::array<float, 5> series{2.0f / 3, -8.0f / 15, 34.0f / 105, -496.0f / 2835,
                                        2764.0f / 31185};
  const ir::Expr square = u * u;
  ir::Expr sum = ir::constant(series.back());
  for (std::size_t i = series.size() - 1; i-- > 0;) sum = sum * square + ir::constant(series[i]);
  const ir::Expr t = ir::make(ir::Op::Tanh, {u});
  const ir::Expr difference = t - u * (ir::constant(1.0f) - t * t);
  return ir::select(square < ir::constant(0.0625f), u * square * sum, difference);
}

}  // namespace

ir::Expr stable_gradient(const ir::Expr& mod, const ir::Expr& gradient) {
  const ir::Order order = ir::operands_first({&mod, 1});
  for (const ir::Node* node : order.nodes) {
    const SoftCap soft_cap = as_soft_cap(*node);
    if (!soft_cap.c) continue;
    const ir::Expr derived = derived_by_cap(ir::Expr::share(node), soft_cap.c);
    if (derived && derived == ir::simplify(gradient)) {
      return ir::leaf(ir::Op::Grad) * stable_by_cap(soft_cap.u);
    }
  }
  return gradient;
}

}  // namespace fovea::cpu

#include "engines/jit/score_factors.h"

#include <algorithm>

#include "ir/build.h"
#include "ir/tape.h"
#include "ir/topology.h"

namespace fovea::jit {
namespace {

using ir::Depends;
using ir::Expr;
using ir::Node;
using ir::Op;

bool is_of_head(const Expr& x) {
  return !ir::any(x->depends(), Depends::Q | Depends::K | Depends::Score | Depends::Grad);
}

bool decides_by_score(const ir::Order& order) {
  const std::vector<bool> exact = ir::find_exact(order);
  for (std::size_t i = 0; i < order.nodes.size(); ++i) {
    if (exact[i] && ir::any(order.nodes[i]->depends(), Depends::Score)) return true;
  }
  return false;
}

// The only user of the score, if that is its product with something of the head or its quotient.
const Node* only_product(const ir::Order& order) {
  const Node* found = nullptr;
  for (const Node* node : order.nodes) {
    const auto is_score = [](const Expr& arg) { return arg->op() == Op::Score; };
    if (std::ranges::none_of(node->args(), is_score)) continue;
    const bool product =
        (node->op() == Op::MulF && is_of_head(node->arg(is_score(node->arg(0)) ? 1 : 0))) ||
        (node->op() == Op::DivF && is_of_head(node->arg(1)));
    if (found != nullptr || !product) return nullptr;
    found = node;
  }
  return found;
}

Expr without(const Expr& root, const Node* product) {
  return ir::rebuild(root, [&](const Node& node, std::span<const Expr> args) {
    if (&node == product) return ir::leaf(Op::Score);
    if (info(node.op()).form == ir::Form::Load) return ir::load(node.type(), node.slot(), args);
    if (info(node.op()).form == ir::Form::Scalar) return ir::scalar(node.type(), node.slot());
    return ir::make(node.op(), args);
  });
}

}  // namespace

ScoreFactors split_factors(const Expr& mod) {
  ScoreFactors out{ir::constant(1.0f), ir::constant(1.0f), mod};
  if (mod->op() == Op::MulF) {
    for (std::size_t i = 0; i < 2; ++i) {
      if (!is_of_head(mod->arg(i)) || is_of_head(mod->arg(1 - i))) continue;
      out.outer = mod->arg(i);
      out.inner = mod->arg(1 - i);
      break;
    }
  }
  const ir::Order order = ir::operands_first(std::span(&out.inner, 1));
  if (decides_by_score(order)) return {};
  if (const Node* const product = only_product(order)) {
    const std::size_t other =
        product->op() == Op::MulF && product->arg(0)->op() != Op::Score ? 0 : 1;
    const Expr& factor = product->arg(other);
    out.scale = product->op() == Op::DivF ? ir::constant(1.0f) / factor : factor;
    out.inner = without(out.inner, product);
  }
  return out.inner == mod ? ScoreFactors{} : out;
}

}  // namespace fovea::jit

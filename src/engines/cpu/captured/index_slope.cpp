#include "engines/cpu/captured/index_slope.h"

#include <vector>

#include "ir/topology.h"

namespace fovea::cpu {
namespace {

using ir::Depends;
using ir::Op;
using Slope = std::optional<std::uint32_t>;

bool changes_along_k(const ir::Node& node) {
  return any(node.depends(), Depends::K | Depends::Score | Depends::Grad);
}

// Of a node that changes, from the slopes of its operands.
Slope slope_of(const ir::Node& node, const Slope& a, const Slope& b) {
  switch (node.op()) {
    case Op::IndexK: return 1;
    case Op::AddI: return a && b ? Slope(*a + *b) : std::nullopt;
    case Op::SubI: return a && b ? Slope(*a - *b) : std::nullopt;
    case Op::NegI: return a ? Slope(0 - *a) : std::nullopt;
    case Op::MulI: {
      const ir::Node& factor = *node.arg(1);  // constants come last
      if (!a || factor.op() != Op::ConstI) return std::nullopt;
      return *a * static_cast<std::uint32_t>(factor.int_value());
    }
    default: return std::nullopt;
  }
}

}  // namespace

std::optional<std::int32_t> slope_along_k(const ir::Expr& index) {
  const ir::Order order = ir::operands_first({&index, 1});
  std::vector<Slope> slopes;
  const auto operand = [&](const ir::Node& node, std::size_t i) -> Slope {
    return i < node.args().size() ? slopes[order.number.find(node.arg(i).get())] : std::nullopt;
  };
  for (const ir::Node* node : order.nodes) {
    slopes.push_back(changes_along_k(*node) ? slope_of(*node, operand(*node, 0), operand(*node, 1))
                                            : Slope(0));
  }
  if (!slopes.back()) return std::nullopt;
  return static_cast<std::int32_t>(*slopes.back());
}

}  // namespace fovea::cpu

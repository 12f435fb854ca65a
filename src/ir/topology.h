// Walking expressions as the graphs they are: every node once, operands first, without recursion
// (graphs may be thousands deep), in time linear in the number of nodes however much is shared.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "ir/expr.h"

namespace fovea::ir {

// Numbers for nodes: an open-addressing table from node to index, reused across inserts.
class NodeNumbers {
 public:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  // The number of `node`, or none.
  std::uint32_t find(const Node* node) const {
    for (std::size_t at = start(node);; at = (at + 1) & (table_.size() - 1)) {
      if (table_[at].node == node) return table_[at].number;
      if (table_[at].node == nullptr) return none;
    }
  }
  void insert(const Node* node, std::uint32_t number);  // `node` must be new

 private:
  struct NumberedNode {
    const Node* node = nullptr;
    std::uint32_t number = none;
  };
  std::size_t start(const Node* node) const { return node->hash() & (table_.size() - 1); }

  std::vector<NumberedNode> table_ = std::vector<NumberedNode>(64);
  std::size_t count_ = 0;
};

// All nodes below the roots (roots included), operands before their users, left to right. Roots may
// be null.
struct Order {
  std::vector<const Node*> nodes;
  NodeNumbers number;  // of a node: its place in `nodes`
};
Order operands_first(std::span<const Expr> roots);

// A new expression from an old one, bottom up: `rule` gets each inner or slotted node with its new
// operands. Leaves and constants stay.
Expr rebuild(const Expr& root, const std::function<Expr(const Node&, std::span<const Expr>)>& rule);

}  // namespace fovea::ir

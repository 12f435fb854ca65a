#include "ir/topology.h"

namespace fovea::ir {

void NodeNumbers::insert(const Node* node, std::uint32_t number) {
  if (2 * (count_ + 1) > table_.size()) {
    std::vector<NumberedNode> old(table_.size() * 4);
    old.swap(table_);
    count_ = 0;
    for (const NumberedNode& entry : old) {
      if (entry.node != nullptr) insert(entry.node, entry.number);
    }
  }
  std::size_t at = start(node);
  while (table_[at].node != nullptr) at = (at + 1) & (table_.size() - 1);
  table_[at] = {node, number};
  ++count_;
}

Order operands_first(std::span<const Expr> roots) {
  struct Frame {
    const Node* node;
    std::size_t next;  // operand to visit next
  };
  Order order;
  std::vector<Frame> path;
  const auto visit = [&](const Node* node) {
    if (order.number.find(node) == NodeNumbers::none) path.push_back({node, 0});
  };
  for (const Expr& root : roots) {
    if (!root) continue;
    visit(root.get());
    while (!path.empty()) {
      Frame& frame = path.back();
      if (frame.next < frame.node->args().size()) {
        visit(frame.node->arg(frame.next++).get());
        continue;
      }
      const Node* node = frame.node;
      path.pop_back();
      order.number.insert(node, static_cast<std::uint32_t>(order.nodes.size()));
      order.nodes.push_back(node);
    }
  }
  return order;
}

Expr rebuild(const Expr& root,
             const std::function<Expr(const Node&, std::span<const Expr>)>& rule) {
  const Order order = operands_first({&root, 1});
  std::vector<Expr> renewed;
  renewed.reserve(order.nodes.size());
  std::vector<Expr> args;
  for (const Node* node : order.nodes) {
    const Form form = info(node->op()).form;
    if (form == Form::Leaf || form == Form::Const) {
      renewed.push_back(Expr::share(node));
      continue;
    }
    args.clear();
    for (const Expr& arg : node->args()) args.push_back(renewed[order.number.find(arg.get())]);
    renewed.push_back(rule(*node, args));
  }
  return renewed.back();
}

}  // namespace fovea::ir

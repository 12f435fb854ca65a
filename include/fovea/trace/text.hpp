// Prints a graph of symbolic values as text of the language: values used twice get a `let`, so that
// n operations are n short pieces however much they share. Called by fovea/trace.hpp.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fovea/trace/value.hpp"

namespace fovea::traced {

// Deeper than this an expression is cut by a `let`, well below what the parser nests.
inline constexpr int deepest_inline = 40;

// All nodes below the root, operands first, without recursion.
inline std::vector<const Node*> operands_first(const Node& root) {
  std::vector<const Node*> order;
  std::unordered_map<const Node*, bool> done;  // false: its operands are still to come
  std::vector<const Node*> open{&root};
  while (!open.empty()) {
    const Node* node = open.back();
    const auto [at, is_new] = done.emplace(node, false);
    if (is_new) {
      for (std::size_t i = node->args.size(); i-- > 0;) open.push_back(node->args[i].get());
      continue;
    }
    open.pop_back();
    if (!std::exchange(at->second, true)) order.push_back(node);
  }
  return order;
}

// Adds what the node captures, once.
inline void collect(std::vector<DeclarationPtr>& into, const DeclarationPtr& captured) {
  const auto same_name = [&](const DeclarationPtr& d) { return d->name == captured->name; };
  const auto at = std::ranges::find_if(into, same_name);
  if (at == into.end()) {
    into.push_back(captured);
  } else if ((*at)->text != captured->text) {
    refuse("the name '" + captured->name + "' is declared in two ways: " + (*at)->text + " and " +
           captured->text);
  }
}

class Printer {
 public:
  explicit Printer(const Node& root) : order_(operands_first(root)) {
    for (const Node* node : order_) {
      for (const NodePtr& arg : node->args) ++texts_[arg.get()].uses;
      if (node->captured) collect(captured_, node->captured);
    }
    for (const DeclarationPtr& captured : captured_) taken_.insert(captured->name);
    for (const Node* node : order_) print(*node, texts_[node], node == &root);
  }

  const std::string& text() const { return text_; }
  const std::vector<DeclarationPtr>& captured() const { return captured_; }

 private:
  struct NodeText {
    int uses = 0;
    int depth = 0;
    int level = atom_level;
    std::string text;
  };

  void print(const Node& node, NodeText& own, bool is_root) {
    for (const NodePtr& arg : node.args) {
      own.depth = std::max(own.depth, texts_[arg.get()].depth + 1);
    }
    own.text = piece(node);
    own.level = node.level;
    if (is_root) {
      text_ += own.text;
    } else if ((own.uses > 1 && !node.args.empty()) || own.depth > deepest_inline) {
      const std::string name = fresh_name();
      text_ += "let " + name + " = " + own.text + "; ";
      own = {own.uses, 0, atom_level, name};
    }
  }

  std::string piece(const Node& node) const {
    switch (node.form) {
      case Form::Leaf: return node.text;
      case Form::Call: return node.text + "(" + arguments(node) + ")";
      case Form::Load: return node.text + "[" + arguments(node) + "]";
      case Form::Prefix: return node.text + operand(node, 0, prefix_level);
      case Form::Infix:
        return operand(node, 0, node.level) + " " + node.text + " " +
               operand(node, 1, node.level + 1);
    }
    return {};
  }
  std::string operand(const Node& node, std::size_t i, int weakest) const {
    const NodeText& own = texts_.at(node.args[i].get());
    return own.level < weakest ? "(" + own.text + ")" : own.text;
  }
  std::string arguments(const Node& node) const {
    std::string out;
    for (std::size_t i = 0; i < node.args.size(); ++i) {
      out += (i == 0 ? "" : ", ") + operand(node, i, 0);
    }
    return out;
  }

  std::string fresh_name() {
    std::string name;
    do {
      name = "t" + std::to_string(next_name_++);
    } while (taken_.contains(name));
    return name;
  }

  std::vector<const Node*> order_;
  std::unordered_map<const Node*, NodeText> texts_;
  std::vector<DeclarationPtr> captured_;
  std::set<std::string> taken_;
  std::string text_;
  int next_name_ = 0;
};

}  // namespace fovea::traced

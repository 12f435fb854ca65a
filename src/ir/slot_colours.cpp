// Colour refinement, as for the isomorphism of graphs: the colour of each captured thing takes in
// what it is used for, again and again, until no more can be told apart. What is still alike then
// is interchangeable: one of them is marked, and the others follow.
#include "ir/slot_colours.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/hash.h"
#include "ir/topology.h"

namespace fovea::ir {
namespace {

using Colours = std::vector<std::uint64_t>;

bool is_chain(Op op) { return op == Op::And || op == Op::Or; }

class Refinement {
 public:
  Refinement(std::span<const Expr> roots, const Declarations& declarations)
      : roots_(roots), order_(operands_first(roots)) {
    for (const TensorDecl& tensor : declarations.tensors) {
      std::uint64_t colour = static_cast<std::uint64_t>(tensor.dtype);
      for (const Extent& extent : tensor.extents) {
        colour = hash_combine(colour, static_cast<std::uint64_t>(extent.kind));
        colour = hash_combine(colour, static_cast<std::uint64_t>(extent.number));
      }
      tensors.push_back(colour);
    }
    for (const ScalarDecl& scalar : declarations.scalars) {
      scalars.push_back(static_cast<std::uint64_t>(scalar.type));
    }
  }

  // Until everything that is used has its own colour.
  void run() {
    for (std::size_t known = distinct();;) {
      refine();
      const std::size_t now = distinct();
      if (now == known && !individualize()) return;
      known = distinct();
    }
  }

  Colours tensors, scalars;

 private:
  static bool is_captured(const Node& node) {
    const Form form = info(node.op()).form;
    return form == Form::Load || form == Form::Scalar;
  }

  std::size_t distinct() const { return distinct(Form::Load) + distinct(Form::Scalar); }

  std::size_t distinct(Form form) const {
    std::set<std::uint64_t> seen;
    for (const Node* node : order_.nodes) {
      if (info(node->op()).form == form) seen.insert(colours_of(form)[node->slot()]);
    }
    return seen.size();
  }

  // Gives one of several things of one colour a new one. False if there are none.
  bool individualize() {
    for (const Form form : {Form::Load, Form::Scalar}) {
      std::set<std::pair<std::uint64_t, std::uint32_t>> seen;  // colours with their slots
      for (const Node* node : order_.nodes) {
        if (info(node->op()).form == form)
          seen.emplace(colours_of(form)[node->slot()], node->slot());
      }
      const auto alike = [](const auto& a, const auto& b) { return a.first == b.first; };
      const auto at = std::adjacent_find(seen.begin(), seen.end(), alike);
      if (at == seen.end()) continue;
      Colours& colours = form == Form::Load ? tensors : scalars;
      colours[at->second] = hash_combine(at->first, 1);
      return true;
    }
    return false;
  }

  std::uint32_t number(const Expr& e) const { return order_.number.find(e.get()); }

  const Colours& colours_of(Form form) const { return form == Form::Load ? tensors : scalars; }

  void refine() {
    find_values();
    find_uses();
    for (std::size_t i = 0; i < order_.nodes.size(); ++i) {
      const Node& node = *order_.nodes[i];
      if (!is_captured(node)) continue;
      Colours& colours = info(node.op()).form == Form::Load ? tensors : scalars;
      colours[node.slot()] += mix(hash_combine(uses_[i], values_[i]));  // a sum: order-free
    }
  }

  // By structure, blind to the order of what commutes; a chain of && or || is a set.
  void find_values() {
    values_.assign(order_.nodes.size(), 0);
    sums_.assign(order_.nodes.size(), 0);
    for (std::size_t i = 0; i < order_.nodes.size(); ++i) {
      const Node& node = *order_.nodes[i];
      const Form form = info(node.op()).form;
      const std::uint64_t own = is_captured(node) ? colours_of(form)[node.slot()] : node.payload();
      std::uint64_t value = hash_combine(static_cast<std::uint64_t>(node.op()), own);
      for (const Expr& arg : node.args()) {
        const std::uint64_t part = values_[number(arg)];
        const bool inner = is_chain(node.op()) && arg->op() == node.op();
        sums_[i] += inner ? sums_[number(arg)] : mix(part);
        value = hash_combine(value, info(node.op()).commutes() ? 0 : part);
      }
      values_[i] = info(node.op()).commutes() ? hash_combine(own + 1, sums_[i]) : value;
      values_[i] = hash_combine(values_[i], static_cast<std::uint64_t>(node.op()));
    }
  }

  // What each node is used for, up to the roots. The terms of a chain are used by its top.
  void find_uses() {
    uses_.assign(order_.nodes.size(), 0);
    std::vector<std::uint64_t> handed_on(order_.nodes.size(), 0);  // within a chain
    for (std::size_t r = 0; r < roots_.size(); ++r) {
      if (roots_[r]) uses_[number(roots_[r])] += mix(r + 1);
    }
    for (std::size_t i = order_.nodes.size(); i-- > 0;) {
      const Node& node = *order_.nodes[i];
      for (std::size_t j = 0; j < node.args().size(); ++j) {
        const std::uint64_t place = info(node.op()).commutes() ? 0 : j + 1;
        const std::uint64_t here = hash_combine(hash_combine(uses_[i], values_[i]), place);
        const std::uint64_t use = (uses_[i] != 0 ? mix(here) : 0) + handed_on[i];
        const bool inner = is_chain(node.op()) && node.arg(j)->op() == node.op();
        (inner ? handed_on : uses_)[number(node.arg(j))] += use;
      }
    }
  }

  std::span<const Expr> roots_;
  Order order_;
  std::vector<std::uint64_t> values_, sums_, uses_;
};

}  // namespace

SlotColours find_slot_colours(std::span<const Expr> roots, const Declarations& declarations) {
  Refinement refinement(roots, declarations);
  refinement.run();
  return {std::move(refinement.tensors), std::move(refinement.scalars)};
}

}  // namespace fovea::ir

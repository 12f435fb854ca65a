// Captured things are numbered in the order in which a walk over the formulas first meets them. But
// operands of one shape that commute stand in the order of their slots, so for them the walk itself
// depends on the numbers. Formulas with such operands are numbered by colour refinement first: a
// slot's colour is a hash of its uses, whatever its number.
#include "ir/numbering.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <numeric>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "ir/build.h"
#include "ir/program.h"
#include "ir/topology.h"

namespace fovea::ir {
namespace {

using Colours = std::vector<std::uint64_t>;

bool is_chain(Op op) { return op == Op::And || op == Op::Or; }

// Colours by slot, the same in every process. In the end all that is used has a colour of its own;
// only unused things of one type share one.
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
      const std::uint64_t own = is_captured(node)
                                    ? colours_of(form)[node.slot()]
                                    : node.payload() + std::bit_cast<std::uint64_t>(node.rest());
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

constexpr std::uint32_t unset = ~std::uint32_t{0};

// True if the order of two operands can depend on slots.
bool is_ambiguous(const Node& node) {
  if (!info(node.op()).commutes()) return false;
  const Expr& left = node.arg(0);
  const bool chained = is_chain(node.op()) && left->op() == node.op();
  const Expr& before = chained ? left->arg(1) : left;  // terms of a chain are sorted
  return before != node.arg(1) && before->shape_hash() == node.arg(1)->shape_hash();
}

std::vector<std::uint32_t> sorted_slots(
    std::size_t count, const std::function<bool(std::uint32_t, std::uint32_t)>& less) {
  std::vector<std::uint32_t> sorted(count);
  std::iota(sorted.begin(), sorted.end(), 0u);
  std::ranges::sort(sorted, less);
  return sorted;
}

// Old slot -> its place among the colours.
std::vector<std::uint32_t> ranks(const std::vector<std::uint64_t>& colours) {
  const auto sorted = sorted_slots(colours.size(), [&](std::uint32_t a, std::uint32_t b) {
    return std::pair(colours[a], a) < std::pair(colours[b], b);
  });
  std::vector<std::uint32_t> out(sorted.size());
  for (std::uint32_t i = 0; i < sorted.size(); ++i) out[sorted[i]] = i;
  return out;
}

// What is not used is numbered by its type.
bool type_less(const TensorDecl& a, const TensorDecl& b) {
  if (a.dtype != b.dtype) return a.dtype < b.dtype;
  return std::ranges::lexicographical_compare(
      a.extents, b.extents, {}, [](const Extent& x) { return std::pair(x.kind, x.number); },
      [](const Extent& x) { return std::pair(x.kind, x.number); });
}
bool type_less(const ScalarDecl& a, const ScalarDecl& b) { return a.type < b.type; }

// Numbers in the order of first use; then the rest.
struct FirstUse {
  std::vector<std::uint32_t> slots;
  std::uint32_t next = 0;

  explicit FirstUse(std::size_t count) : slots(count, unset) {}
  void use(std::uint32_t old) {
    if (slots[old] == unset) slots[old] = next++;
  }
  template <class Decl>
  std::vector<std::uint32_t> finish(const std::vector<Decl>& decls) {
    const auto rest = sorted_slots(decls.size(), [&](std::uint32_t a, std::uint32_t b) {
      return type_less(decls[a], decls[b]) || (!type_less(decls[b], decls[a]) && a < b);
    });
    for (const std::uint32_t old : rest) use(old);
    return std::move(slots);
  }
};

Slots number_by_use(std::span<const Expr> formulas, const Declarations& declarations) {
  FirstUse tensors(declarations.tensors.size()), scalars(declarations.scalars.size());
  for (const Node* node : operands_first(formulas).nodes) {
    const Form form = info(node->op()).form;
    if (form == Form::Load) tensors.use(node->slot());
    if (form == Form::Scalar) scalars.use(node->slot());
  }
  return {tensors.finish(declarations.tensors), scalars.finish(declarations.scalars)};
}

std::vector<Expr> renumbered(std::span<const Expr> formulas, const Slots& slots) {
  std::vector<Expr> out(formulas.begin(), formulas.end());
  for (Expr& formula : out) {
    if (formula) formula = renumber(formula, slots.tensors, slots.scalars);
  }
  return out;
}

// True if both orders put the same types into the same places.
template <class Decl>
bool same_types(const std::vector<Decl>& decls, const std::vector<std::uint32_t>& a,
                const std::vector<std::uint32_t>& b) {
  return std::ranges::equal(
      reordered(decls, a), reordered(decls, b),
      [](const Decl& x, const Decl& y) { return !type_less(x, y) && !type_less(y, x); });
}

// By rank first, then by use.
Slots number_by_colour(std::span<const Expr> roots, const Declarations& declarations) {
  Refinement colours(roots, declarations);
  colours.run();
  const Slots ranked{ranks(colours.tensors), ranks(colours.scalars)};
  const Slots by_use =
      number_by_use(renumbered(roots, ranked), {reordered(declarations.tensors, ranked.tensors),
                                                reordered(declarations.scalars, ranked.scalars)});
  Slots out;
  for (const std::uint32_t slot : ranked.tensors) out.tensors.push_back(by_use.tensors[slot]);
  for (const std::uint32_t slot : ranked.scalars) out.scalars.push_back(by_use.scalars[slot]);
  return out;
}

}  // namespace

Slots canonical_slots(std::span<const Expr> roots, const Declarations& declarations) {
  Slots by_use = number_by_use(roots, declarations);
  const Order order = operands_first(roots);
  const bool ambiguous =
      std::ranges::any_of(order.nodes, [](const Node* node) { return is_ambiguous(*node); });
  if (!ambiguous) return by_use;
  Slots slots = number_by_colour(roots, declarations);
  // If interchangeable things changed places and nothing else did, they keep their names.
  const bool same = std::ranges::equal(renumbered(roots, slots), renumbered(roots, by_use)) &&
                    same_types(declarations.tensors, slots.tensors, by_use.tensors) &&
                    same_types(declarations.scalars, slots.scalars, by_use.scalars);
  return same ? by_use : slots;
}

}  // namespace fovea::ir

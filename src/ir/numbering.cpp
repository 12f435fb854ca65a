// Captured things are numbered by first use in the walk of the formulas. Operands of one shape that
// commute stand in the order of their slots, though, so there the walk itself depends on the
// numbers. Such formulas are first numbered by ir/slot_colours, which does not.
#include "ir/numbering.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "ir/build.h"
#include "ir/slot_colours.h"
#include "ir/topology.h"

namespace fovea::ir {
namespace {

constexpr std::uint32_t unset = ~std::uint32_t{0};

bool is_chain(Op op) { return op == Op::And || op == Op::Or; }

// True where the order of two operands can depend on slots.
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
  const SlotColours colours = find_slot_colours(roots, declarations);
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
  // Where interchangeable things changed places and nothing else did, they keep their names.
  const bool same = std::ranges::equal(renumbered(roots, slots), renumbered(roots, by_use)) &&
                    same_types(declarations.tensors, slots.tensors, by_use.tensors) &&
                    same_types(declarations.scalars, slots.scalars, by_use.scalars);
  return same ? by_use : slots;
}

}  // namespace fovea::ir

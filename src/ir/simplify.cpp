#include "ir/simplify.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "ir/build.h"
#include "ir/topology.h"

namespace fovea::ir {
namespace {

// Substituting into the branches of every select costs the square of the size at worst; larger
// graphs than this are left as they are.
constexpr std::size_t largest_graph = 2000;

// Nodes visited by all those substitutions together. If conditions recur under one another the
// copies would double with each: past this the rest stays as it is.
constexpr std::size_t most_work = 200000;

using Facts = std::unordered_map<const Node*, Expr>;

// What follows from `condition` being `value`: a true && makes its operands true, a false || makes
// them false.
void add_facts(const Expr& condition, bool value, Facts& facts) {
  // Once: what is shared below would otherwise be visited once per path.
  if (!facts.emplace(condition.get(), constant(value)).second) return;
  const Op spreads = value ? Op::And : Op::Or;
  if (condition->op() == spreads) {
    for (const Expr& part : condition->args()) add_facts(part, value, facts);
  }
  if (condition->op() == Op::Not) add_facts(condition->arg(0), !value, facts);
}

// `expr` with the nodes in `facts` replaced.
Expr substitute(const Expr& expr, const Facts& facts) {
  const Order order = operands_first({&expr, 1});
  const bool touches =
      std::ranges::any_of(order.nodes, [&](const Node* node) { return facts.contains(node); });
  if (!touches) return expr;
  std::vector<Expr> renewed;
  std::vector<Expr> args;
  for (const Node* node : order.nodes) {
    if (const auto fact = facts.find(node); fact != facts.end()) {
      renewed.push_back(fact->second);
      continue;
    }
    args.clear();
    bool same = true;
    for (const Expr& arg : node->args()) {
      args.push_back(renewed[order.number.find(arg.get())]);
      same = same && args.back() == arg;
    }
    const bool is_load = info(node->op()).form == Form::Load;
    renewed.push_back(same      ? Expr::share(node)
                      : is_load ? load(node->type(), node->slot(), args)
                                : make(node->op(), args));
  }
  return renewed.back();
}

Expr under(const Expr& branch, const Expr& condition, bool value, std::size_t& work) {
  if (work > most_work) return branch;
  work += node_count(branch);
  Facts facts;
  add_facts(condition, value, facts);
  return substitute(branch, facts);
}

Expr use_conditions(const Expr& expr) {
  std::size_t work = 0;
  return rebuild(expr, [&](const Node& node, std::span<const Expr> args) {
    const Form form = info(node.op()).form;
    if (form == Form::Load) return load(node.type(), node.slot(), args);
    if (form == Form::Scalar) return Expr::share(&node);
    if (form != Form::Choice) return make(node.op(), args);
    return select(args[0], under(args[1], args[0], true, work),
                  under(args[2], args[0], false, work));
  });
}

// The constant that an expression is, if its range is one value. f32 never is: a range does not
// tell the sign of a zero.
Expr only_value(const Node& node, const Range& range) {
  switch (node.type()) {
    case Type::Bool:
      if (range.b.always()) return constant(true);
      return range.b.never() ? constant(false) : Expr{};
    case Type::I32:
      return range.i.single() ? constant(static_cast<std::int32_t>(range.i.lo)) : Expr{};
    case Type::F32: return {};
  }
  return {};
}

}  // namespace

std::size_t node_count(const Expr& expr) { return operands_first({&expr, 1}).nodes.size(); }

Expr simplify(const Expr& expr) {
  const std::size_t before = node_count(expr);
  if (before > largest_graph) return expr;
  Expr smaller = use_conditions(expr);
  // A part that was shared between branches may have been copied: then keep what there was.
  return node_count(smaller) <= before ? smaller : expr;
}

Expr simplify(const Expr& expr, const Box& box) {
  const Order order = operands_first({&expr, 1});
  std::vector<Expr> all;
  for (const Node* node : order.nodes) all.push_back(Expr::share(node));
  const Ranges ranges(all);
  Ranges::Scratch scratch;
  ranges.bound(box, scratch);
  Facts facts;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Expr value = only_value(*all[i], ranges.range(scratch, i));
    if (value) facts.emplace(all[i].get(), value);
  }
  const Expr smaller = simplify(substitute(expr, facts));
  // A constant that moves outwards (t + B with a known B) may end what was shared.
  return node_count(smaller) <= all.size() ? smaller : simplify(expr);
}

}  // namespace fovea::ir

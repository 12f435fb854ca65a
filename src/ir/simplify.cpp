#include "ir/simplify.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <vector>

#include "ir/build.h"
#include "ir/topology.h"

namespace fovea::ir {
namespace {

// Identities by subject: f32, i32, bool (with comparisons), select, casts. Each function returns
// null if nothing applies. A rule may call make() again: each one leaves fewer nodes, or the same
// number in canonical form, so this ends.

constexpr std::int32_t least_i32 = std::numeric_limits<std::int32_t>::min();

// Constants by their bits: +0 and -0 differ.
bool is(const Expr& x, float value) {
  return x->op() == Op::ConstF && x->payload() == std::bit_cast<std::uint32_t>(value) &&
         x->rest() == 0;
}
bool is(const Expr& x, std::int32_t value) {
  return x->op() == Op::ConstI && x->int_value() == value;
}
bool is(const Expr& x, bool value) { return x->op() == Op::ConstB && x->bool_value() == value; }
bool is(const Expr& x, Op op) { return x->op() == op; }

bool is_negative_float(const Expr& x) {
  return is(x, Op::ConstF) && std::signbit(x->float_value()) && !std::isnan(x->float_value());
}
bool is_negative_int(const Expr& x) {
  return is(x, Op::ConstI) && x->int_value() < 0 && x->int_value() != least_i32;
}

// c such that x / c and x * (1 / c) round alike for every x: a power of two, both normal.
bool is_power_of_two(const Expr& x) {
  if (!is(x, Op::ConstF) || x->rest() != 0) return false;
  const float c = x->float_value();
  int exponent = 0;
  return std::isfinite(c) && std::fabs(std::frexp(c, &exponent)) == 0.5f && exponent > -125 &&
         exponent < 127;
}

Expr add_f32(const Expr& x, const Expr& y) {
  if (is(y, -0.0f)) return x;
  if (is_negative_float(y)) return x - constant(-y->double_value());
  // Not -x + -y: which of them became the minus would depend on their order.
  if (is(x, Op::NegF) && is(y, Op::NegF)) return {};
  if (is(y, Op::NegF)) return x - y->arg(0);
  if (is(x, Op::NegF)) return y - x->arg(0);
  return {};
}

Expr sub_f32(const Expr& x, const Expr& y) {
  if (is(y, 0.0f)) return x;
  if (is(x, -0.0f)) return -y;
  if (is_negative_float(y)) return x + constant(-y->double_value());
  if (is(y, Op::NegF)) return x + y->arg(0);
  return {};
}

Expr mul_f32(const Expr& x, const Expr& y) {  // a constant stands last
  if (is(y, 1.0f)) return x;
  if (is(y, -1.0f)) return -x;
  if (is(x, Op::NegF)) return -(x->arg(0) * y);
  if (is(y, Op::NegF)) return -(x * y->arg(0));
  return {};
}

Expr div_f32(const Expr& x, const Expr& y) {
  if (is(y, 1.0f)) return x;
  if (is(y, -1.0f)) return -x;
  if (is(x, Op::NegF)) return -(x->arg(0) / y);
  if (is(y, Op::NegF)) return -(x / y->arg(0));
  if (is_power_of_two(y)) return x * constant(1.0f / y->float_value());
  return {};
}

Expr neg_f32(const Expr& x) {
  if (is(x, Op::NegF)) return x->arg(0);
  const bool scaled = is(x, Op::MulF) && is(x->arg(1), Op::ConstF);
  if (scaled) return x->arg(0) * constant(-x->arg(1)->double_value());
  return {};
}

Expr pow_f32(const Expr& x, const Expr& y) {  // arith::power says the same
  if (is(y, 2.0f)) return x * x;
  if (is(y, 1.0f)) return x;
  if (is(y, 0.0f) || is(y, -0.0f)) return constant(1.0f);
  if (is(y, -1.0f)) return constant(1.0f) / x;
  return {};
}

// x written as rest + offset with a constant offset.
struct Offset {
  Expr rest;
  std::int32_t offset = 0;
};
Offset split_offset(const Expr& x) {
  const bool constant_last = x->args().size() == 2 && is(x->arg(1), Op::ConstI);
  if (is(x, Op::AddI) && constant_last) return {x->arg(0), x->arg(1)->int_value()};
  if (is(x, Op::SubI) && constant_last) return {x->arg(0), -x->arg(1)->int_value()};
  return {x, 0};
}

std::int32_t wrapping_add(std::int32_t a, std::int32_t b) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
}
std::int32_t wrapping_neg(std::int32_t a) {
  return static_cast<std::int32_t>(0u - static_cast<std::uint32_t>(a));
}

Expr add_i32(const Expr& x, const Expr& y) {
  if (is(y, 0)) return x;
  if (is_negative_int(y)) return x - constant(-y->int_value());
  if (is(x, Op::NegI) && is(y, Op::NegI)) return -(x->arg(0) + y->arg(0));
  if (is(y, Op::NegI)) return x - y->arg(0);
  if (is(x, Op::NegI)) return y - x->arg(0);
  if (is(x, Op::SubI) && x->arg(1) == y) return x->arg(0);
  if (is(y, Op::SubI) && y->arg(1) == x) return y->arg(0);
  // Constants move outwards and are added up.
  const auto [xr, xo] = split_offset(x);
  if (is(y, Op::ConstI)) {
    return xo != 0 ? xr + constant(wrapping_add(xo, y->int_value())) : Expr{};
  }
  const auto [yr, yo] = split_offset(y);
  if (xo != 0 || yo != 0) return (xr + yr) + constant(wrapping_add(xo, yo));
  return {};
}

Expr sub_i32(const Expr& x, const Expr& y) {
  if (is(y, 0)) return x;
  if (x == y) return constant(0);
  if (is(x, 0)) return -y;
  if (is_negative_int(y)) return x + constant(-y->int_value());
  if (is(y, least_i32)) return x + y;  // -INT_MIN is INT_MIN
  if (is(y, Op::NegI)) return x + y->arg(0);
  if (is(x, Op::AddI) && x->arg(1) == y) return x->arg(0);
  if (is(x, Op::AddI) && x->arg(0) == y) return x->arg(1);
  const auto [xr, xo] = split_offset(x);
  if (is(y, Op::ConstI)) {
    return xo != 0 ? xr + constant(wrapping_add(xo, wrapping_neg(y->int_value()))) : Expr{};
  }
  const auto [yr, yo] = split_offset(y);
  if (xo != 0 || yo != 0) return (xr - yr) + constant(wrapping_add(xo, wrapping_neg(yo)));
  if (is(x, Op::NegI)) return -(x->arg(0) + y);
  return {};
}

Expr mul_i32(const Expr& x, const Expr& y) {
  if (is(y, 0)) return y;
  if (is(y, 1)) return x;
  if (is(y, -1)) return -x;
  if (is(x, Op::NegI)) return -(x->arg(0) * y);
  if (is(y, Op::NegI)) return -(x * y->arg(0));
  const bool nested = is(y, Op::ConstI) && is(x, Op::MulI) && is(x->arg(1), Op::ConstI);
  if (nested) return x->arg(0) * (x->arg(1) * y);
  return {};
}

Expr neg_i32(const Expr& x) {
  if (is(x, Op::NegI)) return x->arg(0);
  if (is(x, Op::SubI) && !is(x->arg(1), Op::ConstI)) return x->arg(1) - x->arg(0);
  if (is(x, Op::MulI) && is(x->arg(1), Op::ConstI)) return x->arg(0) * -x->arg(1);
  return {};
}

Expr divide_i32(Op op, const Expr& x, const Expr& y) {
  const bool quotient = op == Op::FloorDiv || op == Op::TruncDiv;
  if (is(y, 0)) return constant(0);
  if (is(y, 1)) return quotient ? x : constant(0);
  if (is(y, -1)) return quotient ? -x : constant(0);
  return {};
}

Expr bits_i32(Op op, const Expr& x, const Expr& y) {  // a constant stands last
  switch (op) {
    case Op::BitAnd: return is(y, 0) || x == y ? y : is(y, -1) ? x : Expr{};
    case Op::BitOr: return is(y, -1) || x == y ? y : is(y, 0) ? x : Expr{};
    case Op::BitXor: return x == y ? constant(0) : is(y, 0) ? x : Expr{};
    default: break;  // shifts use the low five bits of their count
  }
  if (!is(y, Op::ConstI)) return {};
  const std::int32_t count = y->int_value() & 31;
  if (count == 0) return x;
  return count != y->int_value() ? make(op, {x, constant(count)}) : Expr{};
}

// Chains of && (or ||) are sets: flat, sorted, without duplicates, nested to the left. Only up to
// a bound, so that a long chain built term by term does not cost its square.
constexpr std::size_t longest_sorted_chain = 64;

Expr and_or(Op op, const Expr& x, const Expr& y) {
  const bool is_and = op == Op::And;
  std::vector<Expr> terms, open{y, x};
  while (!open.empty()) {
    const Expr term = open.back();
    open.pop_back();
    if (term->op() == op) {
      open.push_back(term->arg(1));
      open.push_back(term->arg(0));
    } else {
      terms.push_back(term);
      if (terms.size() > longest_sorted_chain) return {};
    }
  }
  const auto less = [](const Expr& a, const Expr& b) { return compare(a, b) < 0; };
  std::sort(terms.begin(), terms.end(), less);
  terms.erase(std::unique(terms.begin(), terms.end()), terms.end());
  const auto has = [&](const Expr& term) {
    return std::binary_search(terms.begin(), terms.end(), term, less);
  };
  std::vector<Expr> kept;
  for (const Expr& term : terms) {
    if (is(term, !is_and)) return term;  // x && false, x || true
    if (is(term, is_and)) continue;
    if (has(not_(term))) return constant(!is_and);  // x && !x
    // Absorption: x && (x || y) is x.
    const bool absorbed =
        is(term, is_and ? Op::Or : Op::And) && (has(term->arg(0)) || has(term->arg(1)));
    if (!absorbed) kept.push_back(term);
  }
  if (kept.empty()) return constant(is_and);
  Expr chain = kept[0];
  for (std::size_t i = 1; i < kept.size(); ++i) {
    const Expr pair[] = {chain, kept[i]};
    chain = intern(op, 0, pair);
  }
  return chain;
}

Expr not_bool(const Expr& x) {
  switch (x->op()) {
    case Op::Not: return x->arg(0);
    case Op::LtI: return x->arg(1) <= x->arg(0);  // not so for f32: NaN
    case Op::LeI: return x->arg(1) < x->arg(0);
    case Op::EqF: return make(Op::NeF, x->args());
    case Op::EqI: return make(Op::NeI, x->args());
    case Op::EqB: return make(Op::NeB, x->args());
    case Op::NeF: return make(Op::EqF, x->args());
    case Op::NeI: return make(Op::EqI, x->args());
    case Op::NeB: return make(Op::EqB, x->args());
    default: return {};
  }
}

Expr compare_bool(Op op, const Expr& x, const Expr& y) {
  const bool is_equal = op == Op::EqB;
  if (x == y) return constant(is_equal);
  if (is(y, Op::ConstB)) return y->bool_value() == is_equal ? x : not_(x);
  if (is(x, Op::Not) && is(y, Op::Not)) return make(op, {x->arg(0), y->arg(0)});
  if (is(x, Op::Not)) return make(is_equal ? Op::NeB : Op::EqB, {x->arg(0), y});
  if (is(y, Op::Not)) return make(is_equal ? Op::NeB : Op::EqB, {x, y->arg(0)});
  return {};
}

Expr select_any(const Expr& c, const Expr& x, const Expr& y) {
  if (is(c, Op::ConstB)) return c->bool_value() ? x : y;
  if (x == y) return x;
  if (is(c, Op::Not)) return select(c->arg(0), y, x);
  const auto choice = [](const Expr& e) { return info(e->op()).form == Form::Choice; };
  if (choice(x) && x->arg(0) == c) return select(c, x->arg(1), y);
  if (choice(y) && y->arg(0) == c) return select(c, x, y->arg(2));
  if (choice(y) && y->arg(1) == x) return select(or_(c, y->arg(0)), x, y->arg(2));
  if (choice(x) && x->arg(2) == y) return select(and_(c, x->arg(0)), x->arg(1), y);
  return {};
}

Expr select_bool(const Expr& c, const Expr& x, const Expr& y) {
  if (is(x, true)) return or_(c, y);
  if (is(x, false)) return and_(not_(c), y);
  if (is(y, true)) return or_(not_(c), x);
  if (is(y, false)) return and_(c, x);
  return select_any(c, x, y);
}

// 0 and 1 made from a bool, asked whether they are 0.
Expr unequal_zero(const Expr& x, const Expr& y) {
  const bool zero = is(y, 0) || is(y, 0.0f) || is(y, -0.0f);
  const bool from_bool = is(x, Op::IntOfBool) || is(x, Op::FloatOfBool);
  return zero && from_bool ? x->arg(0) : Expr{};
}

}  // namespace

Expr apply_identities(Op op, std::span<const Expr> a) {
  switch (op) {
    case Op::AddF: return add_f32(a[0], a[1]);
    case Op::SubF: return sub_f32(a[0], a[1]);
    case Op::MulF: return mul_f32(a[0], a[1]);
    case Op::DivF: return div_f32(a[0], a[1]);
    case Op::NegF: return neg_f32(a[0]);
    case Op::AbsF:
      return is(a[0], Op::AbsF) ? a[0] : is(a[0], Op::NegF) ? make(op, {a[0]->arg(0)}) : Expr{};
    case Op::Pow: return pow_f32(a[0], a[1]);
    case Op::Floor:
    case Op::Ceil:
    case Op::Round:
    case Op::SignF: return is(a[0], op) ? a[0] : Expr{};
    case Op::AddI: return add_i32(a[0], a[1]);
    case Op::SubI: return sub_i32(a[0], a[1]);
    case Op::MulI: return mul_i32(a[0], a[1]);
    case Op::NegI: return neg_i32(a[0]);
    case Op::AbsI:
      return is(a[0], Op::AbsI) ? a[0] : is(a[0], Op::NegI) ? make(op, {a[0]->arg(0)}) : Expr{};
    case Op::FloorDiv:
    case Op::FloorMod:
    case Op::TruncDiv:
    case Op::TruncRem: return divide_i32(op, a[0], a[1]);
    case Op::BitAnd:
    case Op::BitOr:
    case Op::BitXor:
    case Op::Shl:
    case Op::Shr: return bits_i32(op, a[0], a[1]);
    case Op::BitNot: return is(a[0], op) ? a[0]->arg(0) : Expr{};
    case Op::MinF:
    case Op::MinI:
    case Op::MaxF:
    case Op::MaxI: return a[0] == a[1] ? a[0] : Expr{};
    case Op::LtF:
    case Op::LtI: return a[0] == a[1] ? constant(false) : Expr{};
    case Op::NeI: return a[0] == a[1] ? constant(false) : unequal_zero(a[0], a[1]);
    case Op::LeI:
    case Op::EqI: return a[0] == a[1] ? constant(true) : Expr{};
    case Op::NeF: return unequal_zero(a[0], a[1]);
    case Op::EqB:
    case Op::NeB: return compare_bool(op, a[0], a[1]);
    case Op::And:
    case Op::Or: return and_or(op, a[0], a[1]);
    case Op::Not: return not_bool(a[0]);
    case Op::SelectF:
    case Op::SelectI: return select_any(a[0], a[1], a[2]);
    case Op::SelectB: return select_bool(a[0], a[1], a[2]);
    case Op::BoolOfInt: return make(Op::NeI, {a[0], constant(0)});
    case Op::BoolOfFloat: return make(Op::NeF, {a[0], constant(0.0f)});
    case Op::FloatOfInt: return is(a[0], Op::IntOfBool) ? to_f32(a[0]->arg(0)) : Expr{};
    case Op::IntOfFloat:
      return is(a[0], Op::FloatOfBool) ? make(Op::IntOfBool, {a[0]->arg(0)}) : Expr{};
    default: return {};  // the other operations have no identity
  }
}

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
    for (const Expr& arg : node->args()) args.push_back(renewed[order.number.find(arg.get())]);
    renewed.push_back(remake(*node, args));
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
    if (info(node.op()).form != Form::Choice) return remake(node, args);
    return select(args[0], under(args[1], args[0], true, work),
                  under(args[2], args[0], false, work));
  });
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

}  // namespace fovea::ir

#include "ir/lift.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <map>

#include "base/hash.h"
#include "ir/build.h"
#include "ir/topology.h"

namespace fovea::ir {
namespace {

bool stays(float value) {
  constexpr std::array<float, 5> known{0.0f, 1.0f, -1.0f, 2.0f, 0.5f};
  return !std::isfinite(value) || std::ranges::find(known, value) != known.end();
}

bool is_literal(const Node& node) { return node.op() == Op::ConstF && !stays(node.float_value()); }

// Of a sum of integers: which operand is a number that f32 holds exactly; -1: none, or both.
int number_in_sum(const Node& node) {
  constexpr std::int64_t most = 1 << 24;
  const auto is_number = [&](std::size_t i) {
    const Node& arg = *node.arg(i);
    return arg.op() == Op::ConstI && std::abs(std::int64_t{arg.int_value()}) <= most;
  };
  if (node.op() != Op::AddI && node.op() != Op::SubI) return -1;
  return is_number(0) == is_number(1) ? -1 : is_number(0) ? 0 : 1;
}

// One formula. Slots follow an order of the nodes that no literal's value has a say in: operands
// of commutative operations stand in an order that depends on it, so they are put into another.
class Lifter {
 public:
  Lifter(const Expr& formula, Depends keep_in, Shifts shifts, Declarations& declarations,
         std::vector<float>& literals)
      : order_(operands_first({&formula, 1})), declarations_(declarations), literals_(literals) {
    find_lifted(keep_in);
    shifts_.assign(order_.nodes.size(), -1);
    if (shifts == Shifts::Lift) find_shifts();
    if (!any_lifted()) return;
    blind_hashes_.reserve(order_.nodes.size());
    for (const Node* node : order_.nodes) blind_hashes_.push_back(blind_hash(*node));
    number_literals();
  }

  Expr run() {
    if (!any_lifted()) return Expr::share(order_.nodes.back());
    std::vector<Expr> renewed;
    std::vector<Expr> args;
    renewed.reserve(order_.nodes.size());
    for (const Node* node : order_.nodes) {
      args.clear();
      for (const Expr& arg : node->args()) args.push_back(renewed[place(*arg)]);
      renewed.push_back(lift_node(*node, args));
    }
    return renewed.back();
  }

 private:
  std::uint32_t place(const Node& node) const { return order_.number.find(&node); }

  // A literal stays if all its users depend on nothing but `keep_in`.
  void find_lifted(Depends keep_in) {
    lifted_.assign(order_.nodes.size(), false);
    lifted_.back() = is_literal(*order_.nodes.back());
    for (const Node* node : order_.nodes) {
      if (keep_in != Depends::None && node->depends() == keep_in) continue;
      for (const Expr& arg : node->args()) {
        if (is_literal(*arg)) lifted_[place(*arg)] = true;
      }
    }
  }
  bool is_lifted(const Node& node) const { return lifted_[place(node)]; }
  bool any_lifted() const {
    return std::ranges::find(lifted_, true) != lifted_.end() ||
           std::ranges::any_of(shifts_, [](int operand) { return operand >= 0; });
  }

  // Numbers beside sums and differences of q and k. One beside k - q stays in an index: engines
  // know tables by distance by it.
  void find_shifts() {
    enum Kind : std::uint8_t { Other, Position, Distance };
    std::vector<Kind> kinds(order_.nodes.size(), Other);
    for (std::size_t i = 0; i < order_.nodes.size(); ++i) {
      const Node& node = *order_.nodes[i];
      if (node.op() == Op::IndexQ || node.op() == Op::IndexK) kinds[i] = Position;
      if (node.op() == Op::AddI || node.op() == Op::SubI) {
        const Kind x = kinds[place(*node.arg(0))], y = kinds[place(*node.arg(1))];
        const int number = number_in_sum(node);
        kinds[i] = number >= 0 ? std::max(x, y) : x != Other && y != Other ? Distance : Other;
        if (kinds[i] != Other) shifts_[i] = number;
      }
      if (info(node.op()).form != Form::Load) continue;
      for (const Expr& index : node.args()) {
        if (kinds[place(*index)] == Distance) shifts_[place(*index)] = -1;
      }
    }
  }
  // Which operand of a sum is lifted; -1: none.
  int shift_in(const Node& node) const { return shifts_[place(node)]; }
  bool subtracts_shift(const Node& node) const {
    return node.op() == Op::SubI && shift_in(node) == 1;
  }

  // x - 3 is x + -3: a number's sign must not count either.
  bool subtracts_literal(const Node& node) const {
    return node.op() == Op::SubF && is_lifted(*node.arg(1));
  }

  // Of the structure, with all lifted literals alike.
  std::uint64_t blind_hash(const Node& node) {
    constexpr std::uint64_t any_literal = 0x6c69746572616c;
    if (is_lifted(node)) return any_literal;
    const Op op = subtracts_literal(node) ? Op::AddF : subtracts_shift(node) ? Op::AddI : node.op();
    hashes_.clear();
    for (const Expr& arg : node.args()) hashes_.push_back(blind_hashes_[place(*arg)]);
    if (const int shift = shift_in(node); shift >= 0) {
      hashes_[static_cast<std::size_t>(shift)] = any_literal;
    }
    if (info(op).commutes()) std::ranges::sort(hashes_);
    std::uint64_t hash = hash_combine(static_cast<std::uint64_t>(op), node.payload());
    for (const std::uint64_t operand : hashes_) hash = hash_combine(hash, operand);
    return hash;
  }

  void order_operands(const Node& node) {
    operands_.clear();
    for (const Expr& arg : node.args()) operands_.push_back(arg.get());
    if (operands_.size() < 2 || !(info(node.op()).commutes() || subtracts_literal(node))) return;
    // They are two; std::stable_sort would take memory for them.
    if (blind_hashes_[place(*operands_[1])] < blind_hashes_[place(*operands_[0])]) {
      std::swap(operands_[0], operands_[1]);
    }
  }

  // Depth first from the root, each node once. A stack of our own: formulas may be deep.
  void number_literals() {
    std::vector<bool> seen(order_.nodes.size());
    std::vector<const Node*> stack{order_.nodes.back()};
    while (!stack.empty()) {
      const Node& node = *stack.back();
      stack.pop_back();
      if (seen[place(node)]) continue;
      seen[place(node)] = true;
      const bool negated = subtracts_literal(node);
      if (shift_in(node) >= 0) add_shift(node);
      order_operands(node);
      for (const Node* operand : operands_) {
        const float sign = negated && operand == node.arg(1).get() ? -1.0f : 1.0f;
        if (is_lifted(*operand)) add_literal(sign * operand->float_value());
      }
      stack.insert(stack.end(), operands_.rbegin(), operands_.rend());
    }
    if (is_lifted(*order_.nodes.back())) add_literal(order_.nodes.back()->float_value());
  }

  void add_literal(float value) {
    const auto slot = static_cast<std::uint32_t>(declarations_.scalars.size());
    if (slots_.try_emplace(std::bit_cast<std::uint32_t>(value), slot).second) {
      declare(Type::F32, value);
    }
  }
  // Each sum has a slot of its own: q + 5 and k + 5 may be q + 6 and k + 5 in the next formula.
  void add_shift(const Node& node) {
    const std::int32_t number = node.arg(static_cast<std::size_t>(shift_in(node)))->int_value();
    shift_slots_[&node] = static_cast<std::uint32_t>(declarations_.scalars.size());
    declare(Type::I32, static_cast<float>(subtracts_shift(node) ? -number : number));
  }
  void declare(Type type, float value) {
    ScalarDecl scalar;
    scalar.name = "literal_" + std::to_string(declarations_.scalars.size());
    scalar.type = type;
    declarations_.scalars.push_back(std::move(scalar));
    literals_.push_back(value);
  }

  // The literal's scalar; null if only its negative has one, which subtracts_literal reads.
  Expr literal(float value) const {
    const auto at = slots_.find(std::bit_cast<std::uint32_t>(value));
    return at == slots_.end() ? Expr() : scalar(Type::F32, at->second);
  }

  Expr lift_node(const Node& node, const std::vector<Expr>& args) const {
    if (is_lifted(node)) return literal(node.float_value());
    if (subtracts_literal(node)) {
      return make(Op::AddF, {args[0], literal(-node.arg(1)->float_value())});
    }
    if (const int shift = shift_in(node); shift >= 0) {
      const Expr number = scalar(Type::I32, shift_slots_.at(&node));
      const bool is_first = shift == 0 && node.op() == Op::SubI;
      return is_first ? make(Op::SubI, {number, args[1]})
                      : make(Op::AddI, {args[static_cast<std::size_t>(1 - shift)], number});
    }
    return remake(node, args);
  }

  Order order_;
  std::vector<bool> lifted_;                      // by place
  std::vector<int> shifts_;                       // by place: which operand of a sum is lifted
  std::vector<std::uint64_t> hashes_;             // of a node's operands, while it is looked at
  std::vector<const Node*> operands_;             // in the order of their hashes
  std::vector<std::uint64_t> blind_hashes_;       // by place
  std::map<std::uint32_t, std::uint32_t> slots_;  // bits of a literal -> its scalar's slot
  std::map<const Node*, std::uint32_t> shift_slots_;
  Declarations& declarations_;
  std::vector<float>& literals_;
};

}  // namespace

Lifted lift_literals(const Program& program, Depends keep_in, Shifts shifts) {
  Declarations declarations = program.declarations();
  std::vector<float> literals;
  const auto lift = [&](const Expr& formula) {
    return formula ? Lifter(formula, keep_in, shifts, declarations, literals).run() : formula;
  };
  // Between formulas equal literals stay apart: they may differ in the next Program.
  const Expr mod = lift(program.mod());
  const Expr mask = lift(program.mask());
  const Expr bprop = lift(program.bprop());
  return {Program::with_slots(std::move(declarations), mod, mask, bprop), std::move(literals)};
}

}  // namespace fovea::ir

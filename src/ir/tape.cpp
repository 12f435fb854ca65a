#include "ir/tape.h"

#include <algorithm>

#include "ir/arith.h"

namespace fovea::ir {
namespace {

constexpr std::uint32_t none = ~std::uint32_t{0};

// Nodes sorted by stage; within one, operands first as before.
std::vector<const Node*> by_stage(const Order& order) {
  std::vector<const Node*> nodes;
  nodes.reserve(order.nodes.size());
  for (const Stage stage : {Stage::Uniform, Stage::Row, Stage::Column, Stage::Element}) {
    for (const Node* node : order.nodes) {
      if (stage_of(node->depends()) == stage) nodes.push_back(node);
    }
  }
  return nodes;
}

class Lowering {
 public:
  Lowering(std::span<const Expr> roots, const TapeBounds* bounds)
      : roots_(roots), bounds_(bounds), order_(operands_first(roots)), nodes_(by_stage(order_)) {}

  Tape run() {
    prove_indices();
    find_last_uses();
    const std::vector<bool> exact = find_exact(order_);
    register_of_.assign(order_.nodes.size(), none);
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      emit(*nodes_[i], i, exact[number(nodes_[i])]);
    }
    for (std::size_t s = 0; s < stage_count; ++s) tape_.stage[s + 1] += tape_.stage[s];
    for (const Expr& root : roots_) tape_.outputs.push_back(register_of_[number(root.get())]);
    return std::move(tape_);
  }

 private:
  std::uint32_t number(const Node* node) const { return order_.number.find(node); }

  // For each node the last instruction that reads it, if registers may be reused after it: `none`
  // for outputs and for values that a later stage reads.
  void find_last_uses() {
    last_use_.assign(order_.nodes.size(), none);
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      for (const Expr& arg : nodes_[i]->args()) last_use_[number(arg.get())] = at(i);
    }
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      for (const Expr& arg : nodes_[i]->args()) {
        const bool later = stage_of(nodes_[i]->depends()) != stage_of(arg->depends());
        if (later) last_use_[number(arg.get())] = none;
      }
    }
    for (const Expr& root : roots_) last_use_[number(root.get())] = none;
  }

  static std::uint32_t at(std::size_t i) { return static_cast<std::uint32_t>(i); }

  void emit(const Node& node, std::size_t position, bool exact) {
    Instruction out;
    out.op = node.op();
    out.stage = stage_of(node.depends());
    out.depends = node.depends();
    out.exact = exact;
    out.payload = node.payload();
    if (info(node.op()).form == Form::Load) {
      out.first_index = at(tape_.indices.size());
      out.indices = at(node.args().size());
      for (std::size_t i = 0; i < node.args().size(); ++i) {
        tape_.indices.push_back({source(node, i), in_bounds(node, i)});
      }
    } else {
      for (std::size_t i = 0; i < node.args().size(); ++i) out.source[i] = source(node, i);
    }
    release_operands(node, position);
    out.target = register_of_[number(&node)] = take_register(out.stage);
    ++tape_.stage[static_cast<std::size_t>(out.stage) + 1];
    tape_.code.push_back(out);
  }

  std::uint32_t source(const Node& node, std::size_t i) const {
    return register_of_[number(node.arg(i).get())];
  }

  // An operand that dies here gives its register to the result: engines work in place.
  void release_operands(const Node& node, std::size_t position) {
    for (std::size_t i = 0; i < node.args().size(); ++i) {
      const std::uint32_t operand = number(node.arg(i).get());
      if (last_use_[operand] != position) continue;
      last_use_[operand] = none;  // once, though it may stand twice
      const std::uint32_t freed = register_of_[operand];
      free_[static_cast<std::size_t>(tape_.registers[freed])].push_back(freed);
    }
  }

  std::uint32_t take_register(Stage stage) {
    std::vector<std::uint32_t>& free = free_[static_cast<std::size_t>(stage)];
    if (free.empty()) {
      tape_.registers.push_back(stage);
      return at(tape_.registers.size() - 1);
    }
    const std::uint32_t taken = free.back();
    free.pop_back();
    return taken;
  }

  // Bounds all index expressions at once.
  void prove_indices() {
    if (bounds_ == nullptr) return;
    std::vector<Expr> indices;
    for (const Node* node : order_.nodes) {
      if (info(node->op()).form != Form::Load) continue;
      indices.insert(indices.end(), node->args().begin(), node->args().end());
    }
    if (indices.empty()) return;
    const Ranges ranges(indices);
    Ranges::Scratch scratch;
    Box box = bounds_->box;
    box.loads = {};  // those are numbered for another set of formulas
    ranges.bound(box, scratch);
    index_ranges_.assign(order_.nodes.size(), {});
    for (std::size_t i = 0; i < indices.size(); ++i) {
      index_ranges_[number(indices[i].get())] = ranges.range(scratch, i).i;
    }
  }

  bool in_bounds(const Node& node, std::size_t i) const {
    if (bounds_ == nullptr) return false;
    const IntInterval index = index_ranges_[number(node.arg(i).get())];
    const std::span<const std::int64_t> extents = bounds_->extents(node.slot());
    return index.lo >= 0 && index.hi < extents[i];
  }

  std::span<const Expr> roots_;
  const TapeBounds* bounds_;
  Order order_;
  std::vector<const Node*> nodes_;
  std::vector<std::uint32_t> last_use_, register_of_;
  std::vector<IntInterval> index_ranges_;
  std::array<std::vector<std::uint32_t>, stage_count> free_;
  Tape tape_;
};

}  // namespace

Stage stage_of(Depends depends) {
  const bool q = any(depends, Depends::Q), k = any(depends, Depends::K);
  if (any(depends, Depends::Score | Depends::Grad) || (q && k)) return Stage::Element;
  return q ? Stage::Row : k ? Stage::Column : Stage::Uniform;
}

std::vector<bool> find_exact(const Order& order) {
  std::vector<bool> exact(order.nodes.size(), false);
  for (std::size_t i = order.nodes.size(); i-- > 0;) {
    const Node& node = *order.nodes[i];
    // A decision is exact in itself; what is i32 or bool has only decisions below it.
    const bool spreads = exact[i] || decides(node.op()) || node.type() != Type::F32 ||
                         info(node.op()).form == Form::Load;
    if (decides(node.op()) || node.type() != Type::F32) exact[i] = true;
    if (!spreads) continue;
    for (const Expr& arg : node.args()) exact[order.number.find(arg.get())] = true;
  }
  return exact;
}

Tape lower(std::span<const Expr> roots, const TapeBounds* bounds) {
  return Lowering(roots, bounds).run();
}

}  // namespace fovea::ir

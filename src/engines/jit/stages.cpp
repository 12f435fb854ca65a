#include "engines/jit/stages.h"

#include <algorithm>
#include <bit>

#include "engines/jit/render_op.h"
#include "engines/jit/tile_values.h"
#include "ir/build.h"

namespace fovea::jit {
namespace {

using ir::Expr;
using ir::Node;
using ir::Op;
using ir::Stage;

bool divides_by_shifting(const Node& node) {
  return node.arg(1)->op() == Op::ConstI && node.arg(1)->int_value() > 0 &&
         std::has_single_bit(static_cast<std::uint32_t>(node.arg(1)->int_value()));
}

bool costs(const Node& node) {
  switch (node.op()) {
    case Op::LoadF:
    case Op::LoadI:
    case Op::LoadB:
    case Op::DivF:
    case Op::TruncDiv:
    case Op::TruncRem:
    case Op::Exp:
    case Op::Exp2:
    case Op::Expm1:
    case Op::Log:
    case Op::Log2:
    case Op::Log1p:
    case Op::Sqrt:
    case Op::Rsqrt:
    case Op::Pow:
    case Op::Tanh:
    case Op::Sigmoid:
    case Op::Softplus:
    case Op::Erf:
    case Op::Sin:
    case Op::Cos:
    case Op::Tan: return true;
    case Op::FloorDiv:
    case Op::FloorMod: return !divides_by_shifting(node);
    default: return false;  // one or two instructions
  }
}

// Constants are written where they are read, and positions are parameters.
bool has_own_name(const Node& node) {
  return !node.is_const() && node.op() != Op::IndexQ && node.op() != Op::IndexK;
}

}  // namespace

Stages::Stages(std::span<const Expr> roots, const ir::Program& program)
    : kept_(roots.begin(), roots.end()),
      order_(ir::operands_first(roots)),
      exact_(ir::find_exact(order_)) {
  for (const Node* node : order_.nodes) {
    const bool inherits = std::ranges::any_of(node->args(), [&](const Expr& arg) {
      return stage(arg.get()) == stage(node) && costly(arg.get());
    });
    costly_.push_back(costs(*node) || inherits);
  }
  in_pair_.assign(nodes().size(), false);
  find_diagonal_values();
  find_cell(program);
}

// Costly ones that something else than a diagonal value reads.
void Stages::find_diagonal_values() {
  constexpr std::size_t most = 8;
  const std::vector<bool> is_diagonal = find_diagonal(order_);
  std::vector<bool> read(nodes().size());
  for (const Expr& root : kept_) read[number(root.get())] = true;
  for (std::size_t i = 0; i < nodes().size(); ++i) {
    if (is_diagonal[i]) continue;
    for (const Expr& arg : nodes()[i]->args()) read[number(arg.get())] = true;
  }
  for (std::size_t i = 0; i < nodes().size() && diagonal_.size() < most; ++i) {
    if (!read[i] || !is_diagonal[i] || !costly_[i]) continue;
    diagonal_.push_back(nodes()[i]);
    in_pair_[i] = true;
  }
}

// The first of those that scores are computed from; if there is none, of those that masks are.
void Stages::find_cell(const ir::Program& program) {
  std::vector<const Node*> roots;
  for (std::size_t i = 1; i < kept_.size(); ++i) roots.push_back(kept_[i].get());
  roots.push_back(kept_.front().get());
  for (const Node* root : roots) {
    for (const Node* node : below({&root, 1}, Stage::Element)) {
      if (!is_cell_load(*node, program)) continue;
      cell_ = node;
      in_pair_[number(node)] = true;
      return;
    }
  }
}

std::vector<const Node*> Stages::read_later(Stage wanted) const {
  std::vector<bool> read(nodes().size());
  const auto mark = [&](const Expr& e) {
    if (stage(e.get()) == wanted && has_own_name(*e)) read[number(e.get())] = true;
  };
  for (const Expr& root : kept_) mark(root);
  for (const Node* node : nodes()) {
    if (stage(node) == wanted) continue;
    for (const Expr& arg : node->args()) mark(arg);
  }
  std::vector<const Node*> out;
  for (const Node* node : nodes()) {
    if (read[number(node)]) out.push_back(node);
  }
  return out;
}

template <class Goes>
std::vector<const Node*> Stages::reach(std::span<const Node* const> wanted,
                                       const Goes& goes) const {
  std::vector<bool> needed(nodes().size());
  for (const Node* node : wanted) {
    if (goes(node)) needed[number(node)] = true;
  }
  for (std::size_t i = nodes().size(); i-- > 0;) {
    if (!needed[i]) continue;
    for (const Expr& arg : nodes()[i]->args()) {
      if (goes(arg.get())) needed[number(arg.get())] = true;
    }
  }
  std::vector<const Node*> out;
  for (std::size_t i = 0; i < nodes().size(); ++i) {
    if (needed[i]) out.push_back(nodes()[i]);
  }
  return out;
}

std::vector<const Node*> Stages::below(std::span<const Node* const> wanted, Stage of) const {
  return reach(wanted, [&](const Node* node) {
    return stage(node) == of && has_own_name(*node) && !in_pair(node);
  });
}

std::vector<const Node*> Stages::below_staged(std::span<const Node* const> wanted) const {
  return reach(wanted, [&](const Node* node) {
    return stage(node) == Stage::Element && has_own_name(*node);
  });
}

std::string Stages::name(const Node* node, Stage here) const {
  if (node->is_const()) return constant_text(*node);
  if (node->op() == Op::IndexQ) return here == Stage::Row ? "q" : "r.q";
  if (node->op() == Op::IndexK) return here == Stage::Column ? "k" : "c.k";
  const std::string own = "v" + std::to_string(number(node));
  if (in_pair(node)) return "c.pair." + own;
  if (stage(node) == here) return own;
  switch (stage(node)) {
    case Stage::Uniform: return "u." + own;
    case Stage::Row: return "r." + own;
    case Stage::Column: return "c." + own;
    case Stage::Element: break;
  }
  return own;
}

std::vector<Expr> with_reciprocals(std::span<const Expr> roots) {
  const ir::Order order = ir::operands_first(roots);
  const std::vector<bool> exact = ir::find_exact(order);
  const auto rule = [&](const Node& node, std::span<const Expr> args) {
    const bool once = node.op() == Op::DivF && !exact[order.number.find(&node)] &&
                      ir::stage_of(node.depends()) != ir::stage_of(node.arg(1)->depends());
    if (once) return args[0] * (ir::constant(1.0f) / args[1]);
    if (info(node.op()).form == ir::Form::Load) return ir::load(node.type(), node.slot(), args);
    if (info(node.op()).form == ir::Form::Scalar) return ir::scalar(node.type(), node.slot());
    return ir::make(node.op(), args);
  };
  std::vector<Expr> out;
  for (const Expr& root : roots) out.push_back(ir::rebuild(root, rule));
  return out;
}

}  // namespace fovea::jit

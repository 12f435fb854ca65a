#include "engines/jit/stages.h"

#include <algorithm>
#include <bit>

#include "engines/jit/render_op.h"
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

}  // namespace

Stages::Stages(std::span<const Expr> roots)
    : kept_(roots.begin(), roots.end()),
      order_(ir::operands_first(roots)),
      exact_(ir::find_exact(order_)) {
  for (const Node* node : order_.nodes) {
    const bool inherits = std::ranges::any_of(node->args(), [&](const Expr& arg) {
      return stage(arg.get()) == stage(node) && costly(arg.get());
    });
    costly_.push_back(costs(*node) || inherits);
  }
}

std::vector<const Node*> Stages::read_later(Stage wanted) const {
  std::vector<bool> read(nodes().size());
  const auto mark = [&](const Expr& e) {
    if (stage(e.get()) == wanted && !e->is_const()) read[number(e.get())] = true;
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

std::vector<const Node*> Stages::below(std::span<const Node* const> wanted, Stage of) const {
  std::vector<bool> needed(nodes().size());
  for (const Node* node : wanted) {
    if (stage(node) == of && !node->is_const()) needed[number(node)] = true;
  }
  for (std::size_t i = nodes().size(); i-- > 0;) {
    if (!needed[i]) continue;
    for (const Expr& arg : nodes()[i]->args()) {
      if (stage(arg.get()) == of && !arg->is_const()) needed[number(arg.get())] = true;
    }
  }
  std::vector<const Node*> out;
  for (std::size_t i = 0; i < nodes().size(); ++i) {
    if (needed[i]) out.push_back(nodes()[i]);
  }
  return out;
}

std::string Stages::name(const Node* node, Stage here) const {
  if (node->is_const()) return constant_text(*node);
  const std::string own = "v" + std::to_string(number(node));
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

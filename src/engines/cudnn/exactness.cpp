#include "engines/cudnn/exactness.h"

#include <vector>

#include "ir/topology.h"

namespace fovea::cudnn {
namespace {

using ir::Node;
using ir::Op;

// Whether f32 operands of this node decide something.
bool decides(const Node& node) {
  if (node.type() != ir::Type::F32) return true;
  const Op op = node.op();
  return op == Op::Floor || op == Op::Ceil || op == Op::Round || op == Op::SignF;
}

bool is_sum(Op op) { return op == Op::AddF || op == Op::SubF; }

// Why cuDNN may round this node otherwise than f32 does, in words; "" if it rounds the same, once.
// Compilers may fuse a product into the sum that uses it.
std::string what_is_inexact(const Node& node, bool in_a_sum) {
  if (node.type() != ir::Type::F32 || node.args().empty()) return "";
  switch (node.op()) {
    case Op::AddF:
    case Op::SubF:
    case Op::NegF:
    case Op::AbsF:
    case Op::MinF:
    case Op::MaxF:
    case Op::ClampF:
    case Op::SelectF:
    case Op::FloatOfInt:
    case Op::FloatOfBool:
    case Op::Floor:
    case Op::Ceil:
    case Op::Round:
    case Op::SignF:
    case Op::LoadF: return "";
    case Op::MulF: return in_a_sum ? "product within a sum" : "";
    default: return std::string(info(node.op()).text);
  }
}

}  // namespace

Decisions::Decisions(const ir::Program& program) {
  std::vector<ir::Expr> roots;
  for (const ir::Expr& root : {program.mod(), program.mask(), program.bprop()}) {
    if (root) roots.push_back(root);
  }
  if (roots.empty()) return;
  const ir::Order order = ir::operands_first(roots);
  std::vector<bool> exact(order.nodes.size()), summed(order.nodes.size());
  for (std::size_t i = order.nodes.size(); i-- > 0;) {  // users before operands
    const Node& node = *order.nodes[i];
    const bool passes_on = node.type() == ir::Type::F32 && exact[i];
    for (std::size_t a = 0; a < node.args().size(); ++a) {
      const Node& arg = *node.args()[a];
      if (arg.type() != ir::Type::F32) continue;
      const std::size_t place = order.number.find(&arg);
      if (decides(node) || passes_on) exact[place] = true;
      if (is_sum(node.op()) && passes_on) summed[place] = true;
    }
  }
  for (std::size_t i = 0; i < order.nodes.size(); ++i) {
    if (!exact[i]) continue;
    nodes_.insert(order.nodes[i]);
    if (inexact_.empty()) inexact_ = what_is_inexact(*order.nodes[i], summed[i]);
  }
}

}  // namespace fovea::cudnn

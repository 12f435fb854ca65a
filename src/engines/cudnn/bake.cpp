#include "engines/cudnn/bake.h"

#include <algorithm>

#include "attention/tensor_strides.h"
#include "ir/lift.h"
#include "ir/topology.h"

namespace fovea::cudnn {

bool computes_with_b(const ir::Program& program) {
  std::vector<ir::Expr> roots;
  for (const ir::Expr& root : {program.mod(), program.mask(), program.bprop()}) {
    if (root) roots.push_back(root);
  }
  const ir::Order order = ir::operands_first(roots);
  return std::ranges::any_of(order.nodes, [](const ir::Node* node) {
    const bool stays_whole = node->op() == ir::Op::AddI || node->op() == ir::Op::SubI ||
                             info(node->op()).form == ir::Form::Load;
    return node->type() == ir::Type::I32 && !node->args().empty() && !stays_whole &&
           any(node->depends(), ir::Depends::B);
  });
}

Baking bake(const Problem& problem) {
  Problem baked = problem;
  // What depends on the head alone is tabulated when the plan is made; its numbers stay. Where
  // values lie on the device all numbers stay: a call would have to send each of them there.
  ir::Lifted lifted{problem.program, {}};
  if (!problem.device_values) lifted = ir::lift_literals(problem.program, ir::Depends::H);
  baked.program = std::move(lifted.program);
  baked.scale.reset();
  drop_dense_tensor_strides(baked);
  baked.capture = false;
  // Always bound: slices of a batch need it.
  baked.b_offset = problem.b_offset != 0 && computes_with_b(problem.program) ? 1 : 0;
  // Offsets are bound, too, but a graph that adds them is another graph: cuDNN no longer sees the
  // diagonal. 0 and 1 say whether it does; a call may bind any value where it does.
  const bool has_formulas = problem.program.mod() || problem.program.mask();
  for (std::int32_t Problem::* offset :
       {&Problem::h_offset, &Problem::q_offset, &Problem::k_offset}) {
    baked.*offset = has_formulas && problem.*offset != 0 ? 1 : 0;
  }
  if (!has_formulas) baked.has_q_offsets = baked.has_k_offsets = false;
  // How many rows packed tensors have comes with the call; whether they have any is known before.
  const auto forget = [&](std::int64_t& rows, std::int64_t longest) {
    if (rows != 0) rows = std::max<std::int64_t>(baked.sizes.b * longest, 1);
  };
  forget(baked.sizes.t_q, baked.sizes.sq);
  forget(baked.sizes.t_k, baked.sizes.skv);
  if (baked.dropout == 0) baked.rng = Rng::Portable;
  if (baked.direction == Direction::Forward) baked.deterministic = false;
  baked.want_tensors.resize(baked.program.tensors().size());
  baked.want_scalars.resize(baked.program.scalars().size());
  return {{std::move(baked)}, std::move(lifted.literals)};
}

}  // namespace fovea::cudnn

#include "engines/reference/scratch.h"

namespace fovea::reference {

Scratch Scratch::lay_out(Arena& arena, const ScratchNeeds& needs, const Sizes& sizes) {
  const auto slots = static_cast<std::int64_t>(needs.scalars);
  Scratch out;
  out.cells = arena.take_zeros<ir::Cell<double>>(static_cast<std::int64_t>(needs.cells));
  const bool tangent = needs.direction == Direction::Tangent;
  out.scalars = arena.take_zeros<ir::ScalarValue>(tangent ? 2 * slots : slots);
  out.k_head = arena.take_zeros<double>(sizes.skv, sizes.d);
  out.v_head = arena.take_zeros<double>(sizes.skv, sizes.dv);
  out.q_row = arena.take_zeros<double>(sizes.d);
  out.o_row = arena.take_zeros<double>(sizes.dv);
  out.per_head = arena.take_zeros<double>(sizes.h);
  if (needs.direction == Direction::Forward) {
    out.scores = arena.take_zeros<double>(sizes.skv);
    return out;
  }
  out.grad_o_row = arena.take_zeros<double>(sizes.dv);
  out.grad_q_row = arena.take_zeros<double>(sizes.d);
  out.grad_k_head = arena.take_zeros<double>(sizes.skv, sizes.d);
  out.grad_v_head = arena.take_zeros<double>(sizes.skv, sizes.dv);
  out.grad_scalars = arena.take_zeros<double>(slots);
  out.grad_captured = arena.take_zeros<double>(needs.captured_elements);
  if (!tangent) return out;
  out.tensors = arena.take_zeros<ir::TensorView>(2 * static_cast<std::int64_t>(needs.tensors));
  out.tangent_q_row = arena.take_zeros<double>(sizes.d);
  out.tangent_o_row = arena.take_zeros<double>(sizes.dv);
  out.tangent_k_head = arena.take_zeros<double>(sizes.skv, sizes.d);
  out.tangent_v_head = arena.take_zeros<double>(sizes.skv, sizes.dv);
  out.score_row = arena.take_zeros<ScoreTangent>(sizes.skv);
  return out;
}

}  // namespace fovea::reference

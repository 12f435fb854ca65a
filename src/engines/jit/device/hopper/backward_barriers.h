// Makes the barriers of backward_step.h, with as many arrivals as each has.
#pragma once

#include "backward_beside.h"
#include "backward_shape.h"
#include "backward_step.h"

namespace fovea::device {

template <class Config>
FOVEA_DEVICE void make_backward_barriers(const BackwardBarriers& barriers) {
  using Shape = HopperBackwardShape<Config>;
  using Beside = BackwardBeside<Config>;
  constexpr int key_warps = 8, query_warps = 4, ds_warps = Shape::keys / 16;
  for (int i = 0; i < Shape::q_stages; ++i) {
    init_barrier(barriers.full_q(i), Shape::stages_values ? 2 : 1);
    init_barrier(barriers.full_grad_o(i), 1);
    init_barrier(barriers.empty_q(i), key_warps + (Beside::reads_diagonals ? Beside::warps : 0));
  }
  for (int i = 0; i < Shape::ds_stages; ++i) {
    init_barrier(barriers.full_ds(i), ds_warps);
    init_barrier(barriers.empty_ds(i), query_warps + (Beside::works ? Beside::warps : 0));
  }
  init_barrier(barriers.full_keys(), 1);
  init_barrier(barriers.empty_keys(), key_warps + query_warps);
  init_barrier(barriers.landed(), 1);
  if constexpr (Shape::p_tiles > 0) {
    init_barrier(barriers.full_p(), 4);
    init_barrier(barriers.empty_p(), 4);
  }
  publish_barriers();
}

}  // namespace fovea::device

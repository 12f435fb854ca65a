// What the kernels of backward.h and backward_wide.h have in common: how a block begins, the warps
// that have no keys, and how rows are marked for backward_finish.h.
#pragma once

#include "backward_beside.h"
#include "backward_producer.h"
#include "backward_queries.h"
#include "backward_shape.h"
#include "backward_step.h"
#include "tma.h"
#include "warpgroup.h"

namespace fovea::device {

// The barriers of backward_step.h, with as many arrivals as each has.
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

template <class Config>
FOVEA_DEVICE BackwardBarriers begin_backward(const MappedArgumentsOf<Arguments>& a) {
  static_assert(Config::threads == 512);
  const BackwardBarriers barriers{static_cast<Shared>(HopperBackwardShape<Config>::at.barriers)};
  if (thread_index() == 0) {
    make_backward_barriers<Config>(barriers);
    FOVEA_UNROLL for (int i = map_q; i <= map_grad_o; ++i) prefetch_map(a.maps[i]);
  }
  await_earlier_kernels();
  sync_block();
  return barriers;
}

// Warps 8 to 15.
template <class Config>
FOVEA_DEVICE void run_beside_keys(const MappedArgumentsOf<Arguments>& a,
                                  const BackwardBarriers& barriers, int warp) {
  if (warp < 12) {
    give_registers_back<64>();
    BackwardQueries<Config>(a.rest, barriers, warp - 8).run();
  } else {
    give_registers_back<32>();
    if (warp == 12) {
      BackwardProducer<Config>(a, barriers).run();
    } else if constexpr (BackwardBeside<Config>::works) {
      BackwardBeside<Config>(a.rest, barriers).run();
    }
  }
}

// Says whether the rows that a warp has written have a NaN. It may come from what is masked, times
// a probability of 0: backward_finish.h looks at such rows again. `word`: of the eight of a tile.
template <class Config>
FOVEA_DEVICE void note_nan(const CallArguments& call, const StepRef& step, int word, bool nan) {
  constexpr int keys = HopperBackwardShape<Config>::keys;
  const int head = step.b() * call.hkv + step.h() / call.group;
  const long long tile = head * ((call.skv + keys - 1) / keys) + step.k_first() / keys;
  if (lane_index() == 0) call.key_nans[8 * tile + word] = nan ? 1u : 0u;
}

}  // namespace fovea::device

// Warps that compute a formula's staged values before the scores are ready: those that change with
// the query, the key or the distance alone, and the cells of a captured tensor. They follow the
// producer's steps.
#pragma once

#include "../distances.h"
#include "cells.h"
#include "forward_shared.h"
#include "mbarrier.h"
#include "steps.h"

namespace fovea::device {

template <class Layout>
struct Stager {
  static constexpr auto shared = Layout::shared;
  static constexpr int rows = Layout::rows, columns = Layout::columns;
  static constexpr int threads = 32 * Layout::stager_warps;
  using Barriers = HopperForwardShared;

  const Arguments& a;
  int thread;  // of those

  bool has_rows = false;  // of this tile of queries

  FOVEA_DEVICE void run() {
    Ring k, own{0, 1};
    for (;; k.advance(Layout::k_stages), own.advance(Layout::staged_stages)) {
      wait_for(Layout::barrier(Barriers::announced, k.stage), k.parity);
      const ForwardStep step = load_step(shared.step + 16 * k.stage);
      tell(Barriers::free_k, k.stage);  // the step was read
      if (step.is(ForwardStep::end)) return;
      if (step.is(ForwardStep::first)) has_rows = false;
      wait_for(Layout::barrier(Barriers::free_staged, own.stage), own.parity);
      // Values of the mask are not needed if nothing of the tile is masked.
      if (Formula::has_mod || step.is(ForwardStep::masked)) stage(step, own.stage);
      tell(Barriers::staged, own.stage);
    }
  }

  FOVEA_DEVICE static void tell(int which, int stage) {
    sync_warp();
    if (lane_index() == 0) arrive(Layout::barrier(which, stage));
  }

  FOVEA_DEVICE void stage(const ForwardStep& step, int stage) {
    const auto at = load_struct<TilePlace>(shared.place + step.place() * tile_place_bytes);
    const auto uniform = Formula::uniform(a, at.head(a.call));
    const Team team{thread, threads};
    const int q = seen(step.q0, at.s.q_offset), k = seen(step.k0, at.s.k_offset);
    const TileBox box{q, k, at.s.q_length - step.q0, at.s.k_length - step.k0};
    if constexpr (has_small_cells<Formula>) {
      if (!step.is(ForwardStep::cells))
        copy_small_cells<Formula, rows, columns, threads>(a, uniform, Layout::cells_at(stage), box,
                                                          thread);
    } else {
      copy_cells<Formula, rows, columns, threads>(a, uniform, Layout::cells_at(stage), box, thread);
    }
    commit_copies();
    if (!has_rows) {
      has_rows = true;
      stage_rows<Formula>(a, uniform, Layout::rows_at(step.q_stage()), q, rows, team);
    }
    stage_columns<Formula>(a, uniform, Layout::columns_at(stage), k, columns, team);
    if constexpr (Formula::diagonal_words > 0) {
      copy_distances<Formula, rows, columns>(a.call, distances_of<Formula>(a.call, at.b, at.h),
                                             step.q0, step.k0, Layout::diagonal_at(stage), team);
    }
    wait_copies<0>();
  }
};

}  // namespace fovea::device

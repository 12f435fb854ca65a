// The forward for sm_90: where everything lies in shared memory, and who waits for whom.
#pragma once

#include "cells.h"
#include "forward_shared.h"
#include "mbarrier.h"

namespace fovea::device {

template <class Config>
struct ForwardLayout {
  using Element = typename Config::Element;
  static constexpr int d = Config::d, dv = Config::dv;
  static constexpr int rows = Config::rows, columns = Config::columns;
  static constexpr int q_stages = Config::q_stages, k_stages = Config::k_stages;
  static constexpr int warpgroups = rows / warpgroup_rows;  // that multiply
  static constexpr TileSizes sizes = tile_sizes_of<Config, Formula>();
  static constexpr HopperForwardShared shared{sizes, q_stages, k_stages};
  static_assert(shared.bytes <= Config::shared_bytes && warpgroups <= 3);
  static constexpr int q_bytes = tile_bytes(rows, d), k_bytes = tile_bytes(columns, d),
                       v_bytes = tile_bytes(columns, dv), cell_bytes = tile_bytes(rows, columns);
  static constexpr bool stages_values = Formula::row_words > 0 || Formula::column_words > 0 ||
                                        Formula::diagonal_words > 0 || Formula::has_cells;
  static constexpr int stager_warps = stages_values ? 2 : 0;
  static constexpr int staged_stages = HopperForwardShared::staged_stages_of(sizes, k_stages);
  // Each of three warpgroups leaves out tiles of keys of which its rows see nothing. For two of
  // them that is rare, and costs more than it saves (1 to 2 %, measured on an H200).
  static constexpr int groups_classified = Formula::has_mask && warpgroups == 3 ? warpgroups : 1;
  // Registers of a thread: few for warps that load and stage, all others for those that multiply.
  static constexpr bool wide = warpgroups == 2;
  static constexpr int loader_registers = wide ? 56 : 32, registers = wide ? 224 : 160;

  FOVEA_DEVICE static Shared barrier(int which, int stage) {
    return shared.barriers + 8 * (which + stage);
  }
  FOVEA_DEVICE static Shared rows_at(int stage) {
    return shared.row_words + stage * HopperForwardShared::row_bytes_of(sizes);
  }
  FOVEA_DEVICE static Shared columns_at(int stage) {
    return shared.column_words + stage * HopperForwardShared::column_bytes_of(sizes);
  }
  FOVEA_DEVICE static Shared diagonal_at(int stage) {
    return shared.diagonal + stage * diagonal_bytes(sizes);
  }
  FOVEA_DEVICE static Shared cells_at(int stage) {
    return shared.cells + stage * HopperForwardShared::cells_bytes_of(sizes);
  }

  // By one thread: who fills arrives once (and the copies' bytes), who reads once for each warp.
  FOVEA_DEVICE static void make_barriers() {
    using Barriers = HopperForwardShared;
    constexpr int readers = 4 * warpgroups;
    FOVEA_UNROLL for (int i = 0; i < 2; ++i) {
      init_barrier(barrier(Barriers::filled_q, i), 1);
      init_barrier(barrier(Barriers::free_q, i), readers);
      init_barrier(barrier(Barriers::filled_v, i), 1);
      init_barrier(barrier(Barriers::free_v, i), readers);
    }
    FOVEA_UNROLL for (int i = 0; i < k_stages; ++i) {
      init_barrier(barrier(Barriers::announced, i), 1);
      init_barrier(barrier(Barriers::filled_k, i), 1);
      init_barrier(barrier(Barriers::free_k, i),
                   readers + 1 + stager_warps);  // the loader of values and stagers read the step
      init_barrier(barrier(Barriers::staged, i), stages_values ? stager_warps : 1);
      init_barrier(barrier(Barriers::free_staged, i), readers);
    }
    init_barrier(barrier(Barriers::cleared, 0), 1);
    publish_barriers();
  }
};

}  // namespace fovea::device

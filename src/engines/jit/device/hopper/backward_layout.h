// How hopper/backward.h and backward_wide.h lay out a block's shared memory, as functions of plain
// numbers: the host needs the same numbers to launch it.
#pragma once

#include "../shared_layout.h"

namespace fovea::device {

constexpr int backward_queries = 64, backward_keys = 128;  // of a tile
constexpr int wide_backward_keys = 64;                     // of backward_wide.h
// Which of them heads of these widths have.
constexpr int backward_tile_keys(int d, int dv) {
  return d > 128 || dv > 128 ? wide_backward_keys : backward_keys;
}
constexpr int backward_key_threads = 256;  // that have scores
// Steps that are described at once: those that are loaded, computed and added to dQ.
constexpr int backward_steps = 8, backward_step_bytes = 64;
constexpr int uniform_bytes = 256;  // for what a formula has for a whole head
// Of captured_diagonal.h's sums: of lanes, for two tiles of dS, and along diagonals.
constexpr int backward_lane_sum_bytes(int keys) {
  return keys == backward_keys ? 2 * 4 * backward_key_threads : 0;
}
constexpr int backward_diagonal_bytes(int keys) {
  return 4 * 8 * (backward_queries + keys + 8) + backward_lane_sum_bytes(keys);
}

struct HopperBackwardSizes {
  int d, dv;      // multiples of 64
  int keys;       // of a tile
  int q_stages;   // tiles of queries and output gradients that are there at once
  int ds_stages;  // tiles of dS
  int sum_slots;  // pieces of dQ of each warp that are on their way to global memory
  int p_tiles;    // that go from one warpgroup to another
  int row_words, column_words, diagonal_words, cell_bytes;  // of the formula
  int captured_bytes;                                       // for sums of captured gradients
};

// Cells of 16 bits lie as those of cells.h.
constexpr int backward_cells_bytes(int keys, int cell_bytes) {
  return backward_queries * keys * cell_bytes;
}

// Tiles that the matrix units read lie at multiples of 1024 bytes.
struct HopperBackwardShared {
  int k, v, q, grad_o, ds, p, sums, cells, row_terms, uniform, row_words, column_words, diagonal,
      steps, captured, barriers, bytes;
  constexpr explicit HopperBackwardShared(const HopperBackwardSizes& t)
      : k(0),
        v(k + t.keys * t.d * 2),
        q(v + t.keys * t.dv * 2),
        grad_o(q + t.q_stages * backward_queries * t.d * 2),
        ds(grad_o + t.q_stages * backward_queries * t.dv * 2),
        p(ds + t.ds_stages * backward_queries * t.keys * 2),
        sums(p + t.p_tiles * backward_queries * t.keys * 2),
        cells(sums + t.sum_slots * 4 * 16 * 64 * 4),
        row_terms(cells + t.q_stages * backward_cells_bytes(t.keys, t.cell_bytes)),
        uniform(row_terms + t.q_stages * 2 * 4 * backward_queries),
        row_words(uniform + t.q_stages * uniform_bytes),
        column_words(row_words + t.q_stages * 4 * backward_queries * t.row_words),
        diagonal(column_words + t.q_stages * 4 * t.keys * t.column_words),
        steps(diagonal + t.q_stages * 4 * (backward_queries + t.keys) * t.diagonal_words),
        captured(steps + backward_steps * backward_step_bytes),
        barriers(captured + t.captured_bytes),
        bytes(barriers + 256) {}
};

// Words of a set of tiles of keys, and such sets for each tile of dQ's sums: see backward_turns.h.
constexpr int backward_turn_sets = 5;
constexpr int backward_turn_words(int keys, int tile_keys) {
  return (keys + 32 * tile_keys - 1) / (32 * tile_keys);
}

// Where lse and delta of query `row` of a tile lie among the tile's: a lane that has queries
// 8 j + 2 t and the next finds those of two j in one load of 16 bytes.
constexpr int row_term_place(int row) {
  const int j = row / 8;
  return j / 2 * 16 + row / 2 % 4 * 4 + j % 2 * 2 + row % 2;
}

}  // namespace fovea::device

// The tiles of hopper/backward.h and backward_wide.h in shared memory, and what a formula has there
// for each of them.
//
// A tile of features lies in chunks of 64 columns, each of them rows of 128 bytes in the swizzled
// order that TMA writes and the matrix units read.
#pragma once

#include "../element.h"
#include "../formula.h"
#include "../tile_values.h"
#include "backward_layout.h"
#include "cells.h"

namespace fovea::device {

template <class Config>
struct HopperBackwardShape {
  static constexpr int d = Config::d, dv = Config::dv;
  static constexpr int queries = backward_queries, keys = Config::columns;
  static constexpr int q_stages = Config::q_stages, ds_stages = Config::ds_stages;
  static constexpr int sum_slots = Config::sum_slots, p_tiles = Config::p_tiles;
  static_assert(d % 64 == 0 && dv % 64 == 0);
  static constexpr HopperBackwardShared at{{d, dv, keys, q_stages, ds_stages, sum_slots, p_tiles,
                                            Formula::row_words, Formula::column_words,
                                            Formula::diagonal_words, cell_bytes_of<Formula>,
                                            Config::captured_bytes}};
  static_assert(at.bytes <= Config::shared_bytes);

  static constexpr int row_bytes = 128;  // of a chunk
  static constexpr int q_chunk = queries * row_bytes, k_chunk = keys * row_bytes;
  static constexpr int q_bytes = queries * d * 2, grad_o_bytes = queries * dv * 2;
  static constexpr int k_bytes = keys * d * 2, v_bytes = keys * dv * 2;
  static constexpr int ds_bytes = keys * queries * 2;
  static constexpr int term_bytes = 4 * queries;  // lse, or delta, of a tile
  static constexpr int diagonal_bytes = 4 * (queries + keys) * Formula::diagonal_words;

  // How many heads' first keys come before the second ones, if masks decide how long tiles take. So
  // many heads' queries, output gradients and sums of dQ stay in the cache.
  static constexpr int heads_together = d + dv > 256 ? 4 : 16;

  // What is kept for a whole head: only fields that are used are loaded.
  static constexpr bool has_uniform = sizeof(typename Formula::Uniform) % 4 == 0 &&
                                      sizeof(typename Formula::Uniform) <= uniform_bytes;
  static constexpr bool stages_values =
      has_uniform || Formula::row_words > 0 || Formula::column_words > 0 || Formula::has_cells;

  FOVEA_DEVICE static Shared q_tile(int stage) { return at.q + stage * q_bytes; }
  FOVEA_DEVICE static Shared grad_o_tile(int stage) { return at.grad_o + stage * grad_o_bytes; }
  FOVEA_DEVICE static Shared ds_tile(int stage) { return at.ds + stage * ds_bytes; }
  FOVEA_DEVICE static Shared p_tile(int i) { return at.p + i * ds_bytes; }
  FOVEA_DEVICE static Shared lse(int stage) { return at.row_terms + stage * 2 * term_bytes; }
  FOVEA_DEVICE static Shared delta(int stage) { return lse(stage) + term_bytes; }
  FOVEA_DEVICE static Shared uniform(int stage) { return at.uniform + stage * uniform_bytes; }
  FOVEA_DEVICE static Shared row_words(int stage) {
    return at.row_words + stage * 4 * queries * Formula::row_words;
  }
  FOVEA_DEVICE static Shared column_words(int stage) {
    return at.column_words + stage * 4 * keys * Formula::column_words;
  }
  FOVEA_DEVICE static Shared diagonal(int stage) { return at.diagonal + stage * diagonal_bytes; }
  static constexpr int cells_bytes = backward_cells_bytes(keys, cell_bytes_of<Formula>);
  FOVEA_DEVICE static SwappedTile<queries, keys> cells(int stage) {
    return {static_cast<Shared>(at.cells + stage * cells_bytes)};
  }
};

}  // namespace fovea::device

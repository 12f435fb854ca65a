// How the forward for sm_90 lays out a block's shared memory: see shared_layout.h.
#pragma once

#include "../shared_layout.h"

namespace fovea::device {

// A warpgroup takes 64 rows. There are two places for values, two or three for keys, and two for
// what is staged beside them (as many as for keys, if there are cells: those come with the keys).
constexpr int warpgroup_rows = 64, value_stages = 2;
// Places of what is known of a tile of queries: from before the tile before it until its results
// are written, which is after the queries of the next have been used.
constexpr int place_stages = 8;
constexpr int tile_place_bytes = 80;  // of TilePlace
// Of TileViews for 32 tiles of keys, 16 bits each: of this tile of queries and of the next.
constexpr int views_bytes = 64, views_stages = 2;

// Tiles of 16-bit elements are stored as pieces of 64 columns, one behind the other.
constexpr int piece_columns = 64;
constexpr int pieces_of(int columns) { return (columns + piece_columns - 1) / piece_columns; }
constexpr int tile_bytes(int rows, int columns) { return rows * 128 * pieces_of(columns); }

struct HopperForwardShared {
  int q, k, v, cells, row_words, column_words, diagonal, step, place, views, barriers, bytes;
  constexpr HopperForwardShared(const TileSizes& t, int q_stages, int k_stages)
      : q(0),
        k(q + q_stages * tile_bytes(t.rows, t.d)),
        v(k + k_stages * tile_bytes(t.columns, t.d)),
        cells(v + value_stages * tile_bytes(t.columns, t.dv)),
        row_words(cells + k_stages * cells_bytes_of(t)),
        column_words(row_words + q_stages * row_bytes_of(t)),
        diagonal(column_words + staged_stages_of(t, k_stages) * column_bytes_of(t)),
        step(diagonal + staged_stages_of(t, k_stages) * diagonal_bytes(t)),
        place(step + k_stages * 16),
        views(place + place_stages * tile_place_bytes),
        barriers(views + views_stages * views_bytes),
        bytes(barriers + 8 * barrier_count) {}

  // Of 16 bits they lie without gaps, as the hardware copies them: see cells.h.
  static constexpr int cells_bytes_of(const TileSizes& t) {
    return t.cell_bytes == 2 ? tile_bytes(t.rows, t.columns) : cells_bytes(t);
  }
  static constexpr int staged_stages_of(const TileSizes& t, int k_stages) {
    return t.cell_bytes > 0 ? k_stages : 2;
  }
  static constexpr int row_bytes_of(const TileSizes& t) {
    return round_to_16(4 * t.rows * t.row_words);
  }
  static constexpr int column_bytes_of(const TileSizes& t) {
    return round_to_16(4 * t.columns * t.column_words);
  }

  // Barriers, by place: filled and free queries, keys, values; announced steps; staged values that
  // are there, or free; values that are cleared behind their sequence's end.
  static constexpr int filled_q = 0, free_q = 2, filled_k = 4, free_k = 7, filled_v = 10,
                       free_v = 12, announced = 14, staged = 17, free_staged = 20, cleared = 23,
                       barrier_count = 24;
};

}  // namespace fovea::device

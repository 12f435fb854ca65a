// Cells of a captured tensor t[..., q, ..., k] for a tile of scores. 16-bit cells are stored in
// pieces of 64 columns, in rows of 128 bytes whose 16-byte parts are swapped: no space is lost
// between rows, and eight rows are read at once from different banks.
#pragma once

#include "../tile_values.h"
#include "forward_shared.h"

namespace fovea::device {

template <int rows, int columns_>
struct SwappedTile {
  using Element = F16;  // whatever 16 bits mean
  static constexpr int columns = columns_;
  Shared base;
  FOVEA_DEVICE Shared at(int row, int column) const {
    return base + column / piece_columns * rows * 128 + row * 128 +
           ((column % piece_columns / 8 ^ row % 8) << 4) + column % 8 * 2;
  }
};

template <class Formula>
inline constexpr bool has_small_cells = cell_bytes_of<Formula> == 2;

// A whole tile, 16 bytes at a time. A thread copies pieces that lie one below the other.
template <int rows, int columns, int threads>
FOVEA_DEVICE void copy_whole_cells(const SwappedTile<rows, columns>& to, const char* data,
                                   long long row_bytes, int thread) {
  constexpr int pieces = columns / 8, step = threads / pieces;
  if (thread >= step * pieces) return;
  const int first = thread / pieces, column = thread % pieces * 8;
  const char* own = data + first * row_bytes + column * 2;
  FOVEA_NO_UNROLL for (int row = first; row < rows; row += 4 * step) {
    FOVEA_UNROLL for (int i = 0; i < 4; ++i) {
      const int at = row + i * step;
      if (rows % (4 * step) == 0 || at < rows) copy_async<16>(to.at(at, column), own, 16);
      own += step * row_bytes;
    }
  }
}

// Begins to copy a tile's cells, as copy_cells does.
template <class Formula, int rows, int columns, int threads, class Arguments>
FOVEA_DEVICE void copy_small_cells(const Arguments& a, const typename Formula::Uniform& u,
                                   Shared at, TileBox box, int thread) {
  using Stored = typename Formula::Cell::Stored;
  const SwappedTile<rows, columns> to{at};
  const CellSource from = Formula::cells(a, u);
  box.q_count = min(max(box.q_count, 0), rows);
  box.k_count = min(max(box.k_count, 0), columns);
  const auto* const data = static_cast<const Stored*>(from.data) + box.q_first * from.q_stride +
                           box.k_first * from.k_stride;
  const int wide = cell_copy_bytes<2>(from, reinterpret_cast<const char*>(data), box);
  const Team team{thread, threads};
  const Rows part{data, from.q_stride, 1, box.q_count, box.k_count, wide};
  if (wide == 16 && box.q_count == rows && box.k_count == columns) {
    return copy_whole_cells<rows, columns, threads>(to, reinterpret_cast<const char*>(data),
                                                    2 * from.q_stride, thread);
  }
  if (wide == 16) return copy_pieces<16>(to, rows, part, team);
  FOVEA_NO_UNROLL for (int i = thread; i < rows * columns; i += threads) {
    const int row = i / columns, column = i % columns;
    Stored value = 0;
    if (row < box.q_count && column < box.k_count) {
      value = load_cell<Stored>(from, box, row, column);
    }
    store_shared(to.at(row, column), value);
  }
}

// What a lane reads of diagonals and cells, as LanePairs does: two rows, 8 apart.
template <class Formula, int rows, int columns, bool reads_diagonal, bool reads_cell>
class WarpPairs {
 public:
  FOVEA_DEVICE WarpPairs(const TileValues& at, int first_row)
      : others_(at, first_row + lane_index() / 4, 2 * (lane_index() % 4)),
        cells_{at.cells},
        row_(first_row + lane_index() % 16) {}

  FOVEA_DEVICE void load(int j) {
    others_.load(j);
    if constexpr (small) {
      if (j % 2 == 0) load_matrices(words_, cells_.at(row_, 8 * (j + lane_index() / 16)));
      now_ = j % 2;
    }
  }
  // Of row number r and column 8 j + c.
  FOVEA_DEVICE typename Formula::Pair pair(int r, int c) const {
    if constexpr (small) {
      const unsigned word = words_[2 * now_ + r];
      return others_.pair_with(r, c, c == 0 ? word & 0xffffu : word >> 16);
    } else {
      return others_.pair(r, c);
    }
  }

 private:
  static constexpr bool small = reads_cell && has_small_cells<Formula>;
  LanePairs<Formula, rows, columns, 2, reads_diagonal, reads_cell && !small> others_;
  SwappedTile<rows, columns> cells_;
  int row_, now_ = 0;
  unsigned words_[4] = {};
};

}  // namespace fovea::device

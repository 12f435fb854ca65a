// Values of a formula at each (q, k) of a tile that do not depend on the score, in shared memory:
// those that change with k - q alone, one for each diagonal, and the cells of one captured tensor.
#pragma once

#include "captured_load.h"
#include "formula.h"
#include "sequence.h"
#include "staged.h"
#include "tile.h"

namespace fovea::device {

// A tile of scores: its first positions as formulas see them, and how many rows and columns of it
// the sequence has.
struct TileBox {
  int q_first, k_first;
  int q_count, k_count;
};

// Word w of the diagonal through row r and column c lies at 4 (w (rows + columns) + c - r + rows -
// 1). By all threads of a team.
template <class Formula, int rows, int columns, class Arguments>
FOVEA_DEVICE void stage_diagonals(const Arguments& a, const typename Formula::Uniform& u, Shared at,
                                  const TileBox& box, Team team = whole_block()) {
  if constexpr (Formula::diagonal_words > 0) {
    FOVEA_NO_UNROLL
    for (int i = team.thread; i < rows + columns - 1; i += team.threads) {
      const int distance = i - (rows - 1);  // from the tile's own diagonal
      const unsigned q = static_cast<unsigned>(box.q_first) + (distance < 0 ? -distance : 0);
      const unsigned k = static_cast<unsigned>(box.k_first) + (distance < 0 ? 0 : distance);
      unsigned words[Formula::diagonal_words];
      Formula::make_diagonal(a, u, static_cast<int>(q), static_cast<int>(k), words);
      store_words<Formula::diagonal_words>(at, rows + columns, i, words);
    }
  }
}

// --- cells ---

// Cells are copied as they are: what they mean is up to Formula::Cell.
template <int bytes>
struct CellElement {
  using Type = F16;
};
template <>
struct CellElement<4> {
  using Type = F32;
};
template <class Formula, int columns>
using CellTile =
    SharedTile<typename CellElement<sizeof(typename Formula::Cell::Stored)>::Type, columns>;

template <class Formula>
inline constexpr int cell_bytes_of =
    Formula::has_cells ? static_cast<int>(sizeof(typename Formula::Cell::Stored)) : 0;

// By what a kernel's shared memory is laid out.
template <class Config, class Formula>
constexpr TileSizes tile_sizes_of() {
  return {Config::threads / 32,
          bytes_of<typename Config::Element>,
          Config::d,
          Config::dv,
          Config::rows,
          Config::columns,
          Formula::row_words,
          Formula::column_words,
          Formula::diagonal_words,
          cell_bytes_of<Formula>};
}

// The cell at a row and a column of a tile, of any strides; indices beyond the tensor are clamped.
template <class Stored>
FOVEA_DEVICE Stored load_cell(const CellSource& from, const TileBox& box, int row, int column) {
  return load_global(static_cast<const Stored*>(from.data) +
                     captured::clamped(seen(row, box.q_first), from.q_extent) * from.q_stride +
                     captured::clamped(seen(column, box.k_first), from.k_extent) * from.k_stride);
}

// One by one: of any strides, and if indices must be clamped.
template <class Formula, int columns>
FOVEA_DEVICE_CALL void copy_cells_slowly(CellTile<Formula, columns> to, int rows, CellSource from,
                                         TileBox box, Team team) {
  using Stored = typename Formula::Cell::Stored;
  const bool down = from.q_stride < from.k_stride;  // neighbours lie below one another
  FOVEA_NO_UNROLL for (int i = team.thread; i < rows * columns; i += team.threads) {
    const int row = down ? i % rows : i / columns, column = down ? i / rows : i % columns;
    Stored value = 0;
    if (row < box.q_count && column < box.k_count) {
      value = load_cell<Stored>(from, box, row, column);
    }
    store_shared(to.at(row, column), value);
  }
}

// The widest copy that the place of a tile allows, in bytes; 0: its cells must be copied one by
// one.
template <int cell_bytes>
FOVEA_DEVICE int cell_copy_bytes(const CellSource& from, const char* data, const TileBox& box) {
  const bool inside = box.q_first >= 0 && box.k_first >= 0 &&
                      static_cast<long long>(box.q_first) + box.q_count <= from.q_extent &&
                      static_cast<long long>(box.k_first) + box.k_count <= from.k_extent;
  if (!inside || from.k_stride != 1) return 0;
  const unsigned long long all = reinterpret_cast<unsigned long long>(data) |
                                 static_cast<unsigned long long>(from.q_stride * cell_bytes);
  return all % 16 == 0 ? 16 : all % 4 == 0 ? 4 : 0;
}

// Begins to copy a tile's cells; they are there after the next commit_copies, its wait and a
// barrier. By `threads` threads, this one as number `thread`.
template <class Formula, int rows, int columns, int threads, class Arguments>
FOVEA_DEVICE void copy_cells(const Arguments& a, const typename Formula::Uniform& u, Shared at,
                             TileBox box, int thread = thread_index()) {
  if constexpr (Formula::has_cells) {
    using To = CellTile<Formula, columns>;
    using Whole = WholeTile<threads, To>;
    constexpr int bytes = sizeof(typename Formula::Cell::Stored);
    const To to{at};
    const CellSource from = Formula::cells(a, u);
    box.q_count = min(max(box.q_count, 0), rows);
    box.k_count = min(max(box.k_count, 0), columns);
    const char* const data = static_cast<const char*>(from.data) +
                             (box.q_first * from.q_stride + box.k_first * from.k_stride) * bytes;
    const int wide = cell_copy_bytes<bytes>(from, data, box);
    if constexpr (Whole::exists && rows % Whole::step == 0) {
      if (wide == 16 && box.q_count == rows && box.k_count == columns) {
        const long long row_bytes = from.q_stride * bytes;
        const char* const own =
            data + Whole::row(thread) * row_bytes + Whole::column(thread) * bytes;
        return copy_whole_tile<rows, threads>(to, own, row_bytes, thread);
      }
    }
    const Team team{thread, threads};
    const Rows part{data, from.q_stride, 1, box.q_count, box.k_count, wide};
    if (wide == 16) return copy_pieces<16>(to, rows, part, team);
    if (wide == 4) return copy_pieces<4>(to, rows, part, team);
    copy_cells_slowly<Formula, columns>(to, rows, from, box, team);
  }
}

// --- reading ---

struct TileValues {
  Shared diagonal, cells;
};

// What a lane reads of them: `count` rows, 8 apart, of which it goes through pairs of columns, 8
// apart as well. A diagonal that leaves one row's columns is met again in the next row.
template <class Formula, int rows, int columns, int count, bool reads_diagonal, bool reads_cell>
class LanePairs {
 public:
  // row, column: of the lane's first element in the tile.
  FOVEA_DEVICE LanePairs(const TileValues& at, int row, int column)
      : diagonal_(at.diagonal + 4 * (column - row + rows - 1)),
        cells_(in_matrices ? Tile{at.cells}.at(row - lane_index() / 4 + lane_index(),
                                               column - lane_index() % 4 * 2)
                           : Tile{at.cells}.at(row, column)) {}

  // Columns 8 j and 8 j + 1 from the first: for each j in turn, from 0 on.
  FOVEA_DEVICE void load(int j) {
    if constexpr (diagonal) {
      FOVEA_UNROLL for (int w = 0; w < words; ++w) {
        FOVEA_UNROLL for (int i = count - 1; i >= 0; --i) {
          FOVEA_UNROLL for (int c = 0; c < 2; ++c) {
            word_[i][c][w] = j > 0 && i > 0
                                 ? word_[i - 1][c][w]
                                 : load_shared<unsigned>(
                                       diagonal_ + 4 * (w * (rows + columns) + 8 * (j - i) + c));
          }
        }
      }
    }
    if constexpr (cell && in_matrices) {
      unsigned two[4];
      load_matrices(two, cells_ + 8 * j * cell_bytes);
      FOVEA_UNROLL for (int i = 0; i < count; ++i) set_two(i, two[i]);
    } else if constexpr (cell) {
      FOVEA_UNROLL for (int i = 0; i < count; ++i) {
        const Shared at = cells_ + 8 * i * Tile::stride + 8 * j * cell_bytes;
        if constexpr (cell_bytes == 4) {
          const auto two = load_shared<Words2>(at);
          cell_[i][0] = two.x, cell_[i][1] = two.y;
        } else {
          set_two(i, load_shared<unsigned>(at));
        }
      }
    }
  }

  // Of row number i and column 8 j + c.
  FOVEA_DEVICE typename Formula::Pair pair(int i, int c) const {
    if constexpr (diagonal || cell) return pair_with(i, c, cell ? cell_[i][c] : 0);
    return {};
  }
  // The same with a cell from elsewhere.
  FOVEA_DEVICE typename Formula::Pair pair_with(int i, int c, unsigned cell_bits) const {
    return Formula::pair(word_[i][c], cell_bits);
  }

 private:
  static constexpr int words = Formula::diagonal_words;
  static constexpr bool diagonal = words > 0 && reads_diagonal;
  static constexpr bool cell = Formula::has_cells && reads_cell;
  static constexpr int cell_bytes = sizeof(typename Formula::Cell::Stored);
  // Four rows' pairs of 16 bits are what a lane gets of four matrices that lie one below the other.
  static constexpr bool in_matrices = cell_bytes == 2 && count == 4;
  using Tile = CellTile<Formula, columns>;

  FOVEA_DEVICE void set_two(int i, unsigned two) {
    cell_[i][0] = two & 0xffffu, cell_[i][1] = two >> 16;
  }

  Shared diagonal_, cells_;
  unsigned word_[count][2][words > 0 ? words : 1] = {};
  unsigned cell_[count][2] = {};
};

}  // namespace fovea::device

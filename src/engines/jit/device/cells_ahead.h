// Cells of the tiles that a block walks along a row, copied before the block gets to them: each
// warp begins with its own rows of the next tile as soon as it has read those of the last.
#pragma once

#include "staged.h"
#include "tile_values.h"

namespace fovea::device {

// place: where CopyState lies in shared memory (registers are scarce); at: where the cells lie.
template <class Formula, int rows, int columns, int warps, int place, int at>
class CellsAhead {
  using To = CellTile<Formula, columns>;
  static constexpr int bytes = sizeof(typename Formula::Cell::Stored), wide = 16 / bytes;
  static constexpr int pieces = columns / wide;               // of a row
  static constexpr int step = pieces < 32 ? 32 / pieces : 1;  // rows that a warp copies at a time
  struct CopyState {
    const char* data;  // of the first query and the sequence's first key
    int end;           // tiles up to this key of the sequence are copied ahead
    int unused;
  };

 public:
  static constexpr bool exists = Formula::has_cells && rows % (warps * step) == 0;
  static constexpr int place_bytes = sizeof(CopyState);

  // box: the block's queries and all keys of the sequence. By one thread, before a barrier.
  template <class Arguments>
  FOVEA_DEVICE static void keep(const Arguments& a, const typename Formula::Uniform& u,
                                const TileBox& box) {
    if constexpr (exists) {
      const CellSource from = Formula::cells(a, u);
      const char* const data = static_cast<const char*>(from.data) +
                               (box.q_first * from.q_stride + box.k_first * from.k_stride) * bytes;
      const TileBox first{box.q_first, box.k_first, rows, 0};
      const bool begins = box.q_count >= rows && cell_copy_bytes<bytes>(from, data, first) == 16;
      const long long more = from.k_extent - box.k_first;
      const int end = more < box.k_count ? static_cast<int>(more) : box.k_count;
      store_struct(place, CopyState{data, begins ? end : 0, 0});
    }
  }

  // Whether a tile is copied ahead: it must be whole and allow wide copies. False for -1, no tile.
  FOVEA_DEVICE static bool has(int tile) {
    return exists && tile >= 0 && tile * columns + columns <= load_struct<CopyState>(place).end;
  }

  // Begins to copy a tile, if has(tile). By all lanes of a warp, after they have read the cells
  // that lie there.
  template <class Arguments>
  FOVEA_DEVICE static void begin(const Arguments& a, const typename Formula::Uniform& u, int tile) {
    if constexpr (exists) {
      sync_warp();
      const auto from = load_struct<CopyState>(place);
      const int k = tile * columns;
      copy(tile >= 0 && k + columns <= from.end, from.data, Formula::cells(a, u).q_stride * bytes,
           k);
      commit_copies();
    }
  }

 private:
  FOVEA_DEVICE static void copy(bool really, const char* data, long long row_bytes, int k) {
    const int lane = lane_index(), column = lane % pieces * wide;
    const int row = thread_index() / 32 * (rows / warps) + lane / pieces;
    data += row * row_bytes + static_cast<long long>(k + column) * bytes;
    const Shared to = To{at}.at(row, column);
    FOVEA_UNROLL for (int i = 0; i < rows / warps; i += step) {
      copy_async_if(really, to + i * To::stride, data);
      data += step * row_bytes;
    }
  }
};

}  // namespace fovea::device

// How a call is split into pieces. Everything here follows from shapes alone, never from the number
// of threads, and a sequence is split in the same way whatever else is in the batch.
#pragma once

#include <algorithm>
#include <cstdint>

namespace fovea::cpu {

inline constexpr int group_rows = 6;      // rows that kernels multiply together
inline constexpr int block_rows = 96;     // query rows of a block: whole groups
inline constexpr int tile_columns = 128;  // keys of a tile: whole panels, whole words of bits
inline constexpr int keep_words = tile_columns / 64;
// So many rows of a mixed tile are cut to the columns that any of them keeps.
inline constexpr int trim_rows = 24;
inline constexpr int most_splits = 64;     // of a sequence's keys
inline constexpr int splits_of_piece = 4;  // that one task takes, unless they are few
inline constexpr int most_slices = 8;      // tasks that share the rows of a block
inline constexpr int pack_tiles = 8;       // tiles that are packed by one task, at most
static_assert(block_rows % most_slices == 0);

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }
constexpr std::int64_t tiles_of(std::int64_t keys) { return ceil_div(keys, tile_columns); }

// A block of query rows: `heads` heads of a group, each with `rows` rows from `position` on, one
// head's after the other. More than one head only if a head has few rows.
struct Block {
  std::int64_t head = 0;  // in the group
  int heads = 1;
  std::int64_t position = 0;
  int rows = 0;

  int all_rows() const { return heads * rows; }
};

// Blocks of one group of `heads` query heads, each with `length` rows.
constexpr int heads_in_block(std::int64_t length, std::int64_t heads) {
  if (length <= 0 || length >= block_rows) return 1;
  return static_cast<int>(std::min(heads, block_rows / length));
}
// How many blocks a head's rows are cut into. `rows`: of a block; a sequence of at most block_rows
// is one block whatever `rows` is.
constexpr std::int64_t blocks_along(std::int64_t length, int rows) {
  return length <= block_rows ? 1 : ceil_div(length, rows);
}
// A longer sequence never has fewer blocks, so memory is laid out for the longest.
constexpr std::int64_t block_count(std::int64_t length, std::int64_t heads, int rows = block_rows) {
  if (length <= 0 || heads <= 0) return 0;
  return ceil_div(heads, heads_in_block(length, heads)) * blocks_along(length, rows);
}
// Rows that see most under a causal mask come first, so that the last tasks are short ones.
constexpr Block find_block(std::int64_t length, std::int64_t heads, std::int64_t index,
                           int rows = block_rows) {
  const int together = heads_in_block(length, heads);
  const std::int64_t along = blocks_along(length, rows);
  Block block;
  block.head = index / along * together;
  block.heads = static_cast<int>(std::min<std::int64_t>(together, heads - block.head));
  block.position = (along - 1 - index % along) * rows;
  block.rows = static_cast<int>(
      std::min<std::int64_t>(along == 1 ? block_rows : rows, length - block.position));
  return block;
}

// Splits of the keys of a sequence, so that few query rows can still use all threads: they are
// attended to apart and merged in order. The more rows, the more there is to merge, and the longer
// a split.
constexpr std::int64_t least_split_tiles(std::int64_t q_length) { return q_length <= 16 ? 2 : 4; }
constexpr std::int64_t split_tiles(std::int64_t q_length, std::int64_t k_length) {
  return std::max(least_split_tiles(q_length), ceil_div(tiles_of(k_length), most_splits));
}
constexpr std::int64_t split_count(std::int64_t q_length, std::int64_t k_length) {
  if (q_length > block_rows || tiles_of(k_length) <= 4 * least_split_tiles(q_length)) return 1;
  return ceil_div(tiles_of(k_length), split_tiles(q_length, k_length));
}
// An upper bound of split_count() for sequences with at most k_length keys and at least q_length
// rows.
constexpr std::int64_t splits_at_most(std::int64_t q_length, std::int64_t k_length) {
  if (tiles_of(k_length) <= 4 * least_split_tiles(q_length)) return 1;
  return std::min<std::int64_t>(most_splits,
                                ceil_div(tiles_of(k_length), least_split_tiles(q_length)));
}

// Chunks into which the keys of a sequence are cut in a backward: each belongs to one task, which
// owns its dK and dV. At most eight: every chunk has a dQ of its own, to be added up in order.
inline constexpr std::int64_t most_chunks = 8;
constexpr std::int64_t chunk_count(std::int64_t k_length) {
  return k_length <= 0 ? 0 : std::min(most_chunks, tiles_of(k_length));
}
constexpr std::int64_t chunk_tiles(std::int64_t k_length) {
  return k_length <= 0 ? 0 : ceil_div(tiles_of(k_length), chunk_count(k_length));
}

// Parts into which the query rows of a chunk are cut, each with about as many tiles to look at: dK
// and dV are summed over each and then added up in order, so that up to four tasks can share a
// chunk. A sequence of few blocks is one part.
inline constexpr int row_parts = 4;
// The work of a tile for a row. A tile that the mask cuts takes little less than a full one.
inline constexpr std::uint32_t work_of_full_tile = 4, work_of_cut_tile = 3;
// A part with less work than half a block against one full tile costs more than it gains.
constexpr int parts_of_work(std::int64_t blocks, std::int64_t work) {
  constexpr std::int64_t least = block_rows / 2 * work_of_full_tile;
  if (blocks < row_parts) return 1;
  return static_cast<int>(std::clamp<std::int64_t>(work / least, 1, row_parts));
}

}  // namespace fovea::cpu

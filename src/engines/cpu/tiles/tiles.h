// Which tiles of scores a block of query rows must look at. Keys are split into tiles of
// tile_columns; a tree over the tiles of a sequence is walked from the top, and ir/range says of
// each node whether the mask hides all of it, none, or some. Minima and maxima kept for every node
// bound what captured tensors can be there. The keys and values of a hidden tile are never touched.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ir/eval.h"
#include "ir/program.h"
#include "ir/range.h"

namespace fovea::cpu {

struct Tile {
  int number = 0;     // columns [number * tile_columns, ...)
  bool full = false;  // the mask hides nothing of it (the last tile may still be narrower)
};

// One sequence of one call, as formulas see it.
struct KeySequence {
  std::int32_t b = 0;                    // with its offset
  std::int32_t h_first = 0, h_last = 0;  // inclusive, with their offset
  std::int32_t B = 0, H = 0, Hkv = 0, Sq = 0, Skv = 0;
  std::int32_t k_offset = 0;  // position of key 0
  std::int64_t k_length = 0;
  std::span<const ir::ScalarValue> scalars;  // declared, then lifted
  std::span<const ir::TensorView> tensors;
};

// A block of rows: positions [q_first, q_last] (inclusive, with their offset) of heads
// [h_first, h_last] of the sequence, against key tiles [first_tile, last_tile). Positions that wrap
// inside the block (q_last < q_first) are taken to be anything.
struct RowBlock {
  std::int32_t h_first = 0, h_last = 0;
  std::int32_t q_first = 0, q_last = 0;
  int first_tile = 0, last_tile = 0;
};

struct TileScratch;

// A Program's mask, made ready at plan time. Immutable.
class TileMap {
 public:
  TileMap(const ir::Program& program, int columns_of_tile);

  bool hides_nothing() const { return hides_nothing_; }  // every tile is full

  // Tables of minima and maxima: of one sequence and head range, filled once per call (by one task
  // each) and then read by every walk over it. 0 bytes: none needed. A table serves every block
  // whose heads are among those of the sequence that it was filled for; the fewer they are, the
  // more exact it is.
  std::size_t table_bytes(std::int64_t most_keys) const;
  void fill_table(const KeySequence& sequence, void* table, void* scratch) const;

  std::size_t scratch_bytes() const;  // of one thread, for fill_table and TileWalk; aligned to 64

 private:
  friend class TileWalk;
  friend struct TileScratch;
  // What of (q, k) a load changes with, and so when its range is found.
  enum class Along : std::uint8_t {
    Neither,  // once for a block
    Rows,     // once for a block
    Columns,  // once for a call: in the table
    Both,     // at every node, if it reaches few elements
  };

  ir::Box box_of(const KeySequence& sequence, const TileScratch& scratch) const;
  void fill_tiles(const KeySequence& sequence, std::span<ir::Range> tiles,
                  const TileScratch& scratch) const;

  int tile_columns_;
  ir::Ranges formulas_;  // root 0: what is seen; root 1: what the mask alone keeps
  ir::LoadRanges load_ranges_;
  std::vector<Along> along_;                 // by load
  std::vector<std::uint32_t> column_loads_;  // numbers of the loads in the table
  std::vector<std::uint32_t> both_loads_;
  std::vector<std::uint32_t> scalars_;  // slots in use
  std::size_t scalar_count_;
  bool hides_nothing_ = false;
};

// The tree over `tiles` tiles: node i of level l is over tiles [i << l, (i + 1) << l), as far as
// they exist. The nodes of all levels are numbered one after the other, tiles first.
struct TileTree {
  static constexpr std::size_t most_levels = 33;
  explicit TileTree(std::int64_t tiles);

  std::size_t levels = 0;
  std::array<std::int64_t, most_levels + 1> first{};  // number of the first node of each level
};

// Gives the tiles of a block that are not empty, in increasing order. Allocates nothing; lives as
// long as what start() was given.
class TileWalk {
 public:
  TileWalk(const TileMap& map, void* scratch) : map_(map), scratch_(scratch) {}
  void start(const KeySequence& sequence, const void* table, const RowBlock& block);
  bool next(Tile& tile);

  std::int64_t visited() const { return visited_; }  // nodes since the first start; for tests

 private:
  struct Node {
    std::uint32_t level = 0;
    std::int64_t index = 0;
  };
  ir::TileClass classify(Node node, std::int64_t first, std::int64_t last);

  const TileMap& map_;
  void* scratch_;
  ir::Box box_;
  std::span<const ir::TensorView> tensors_;
  const ir::Range* table_ = nullptr;
  std::int64_t k_offset_ = 0, k_length_ = 0;
  std::int64_t first_tile_ = 0, last_tile_ = 0;
  std::int64_t run_next_ = 0, run_last_ = 0;  // full tiles still to be given
  TileTree tree_{0};
  std::array<Node, TileTree::most_levels + 1> stack_;
  std::size_t stacked_ = 0;
  std::int64_t visited_ = 0;
};

}  // namespace fovea::cpu

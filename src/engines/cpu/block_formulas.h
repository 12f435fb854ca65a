// A Program's formulas over one block of query rows: bits of the scores that a mask keeps, and
// scores as a score_mod changes them. Used by one worker; knows which rows belong to which head.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engines/cpu/blocks.h"
#include "engines/cpu/call.h"
#include "engines/cpu/strips/strip.h"

namespace fovea::cpu {

// Rows [first, last) of a block and columns [0, columns) of a tile, columns counted from
// `column_first`, a multiple of 64.
struct TilePart {
  int first = 0, last = 0;
  int column_first = 0, column_last = 0;
};

// One program on one block. If a block has several heads, values of (b, h) and of q are computed
// again for each head, which costs little: such blocks have few rows.
class BlockProgram {
 public:
  BlockProgram(const StripProgram& program, void* state)
      : run_(program, state, block_rows, tile_columns) {}

  // `scalars`: null for those of the call; else one more than those, the last set by tile() to the
  // middle of the tile.
  void start(const Call& call, const Sequence& sequence, std::int64_t first_head,
             const Block& block, std::span<ir::ScalarValue> scalars = {});
  void tile(std::int32_t k_first, int columns);

  // Calls body(strip, run) for every strip of the part, after the values of the strip's head were
  // computed. Rows of strips count within their head: `shift` brings them to rows of the block.
  template <class Body>
  void for_strips(const TilePart& part, const KernelTable& kernels, const Body& body);

  StripRun& run() { return run_; }

 private:
  void select_head(int head);
  LeafValues leaves(int head) const;

  StripRun run_;
  const Call* call_ = nullptr;
  Sequence sequence_;
  Block block_;
  std::int64_t first_head_ = 0;
  std::span<ir::ScalarValue> scalars_;
  int head_ = -1;  // whose values the run has now
  std::int32_t k_first_ = 0;
  int columns_ = 0;
};

template <class Body>
void BlockProgram::for_strips(const TilePart& part, const KernelTable& kernels, const Body& body) {
  for (int head = part.first / block_.rows; head * block_.rows < part.last; ++head) {
    const int base = head * block_.rows;
    const int first = std::max(part.first, base) - base;
    const int last = std::min(part.last - base, block_.rows);
    select_head(head);
    for (int row = first; row < last; row += kernels.strip_rows) {
      StripRun::Strip strip;
      strip.row = row;
      strip.rows = std::min(kernels.strip_rows, last - row);
      for (int c = part.column_first; c < part.column_last; c += kernels.panel_width) {
        strip.column = c;
        strip.columns = std::min(kernels.panel_width, part.column_last - c);
        body(strip, base);
      }
    }
  }
}

// What is kept of a tile, one bit per score: [row][keep_words].
struct KeepBits {
  std::span<std::uint64_t> words;  // block_rows * keep_words

  std::uint64_t* row(int r) const { return words.data() + r * keep_words; }
  void keep_first(int rows, int columns) const;  // all rows keep columns [0, columns)
  // Columns [column_first, column_last) outside of which rows [first, last) keep nothing; the first
  // a multiple of 64. Empty if they keep nothing at all.
  TilePart trim(int first, int last) const;
};

// Runs a mask over a tile.
void find_kept(BlockProgram& mask, const Call& call, int rows, int columns, const KeepBits& keep);

// The middle of a tile, from which positions are counted: see Prepared::relative.
constexpr std::int32_t middle_of(std::int32_t k_first) { return k_first + tile_columns / 2; }

// The values of Prepared::shift and Prepared::slope in the rows of a block.
struct RowShifts {
  std::span<float> shift, slope;  // [block_rows]
  std::span<double> of_tile;      // [block_rows]: to be added to the scores of a row of the tile
  std::span<std::byte> state;
  std::span<ir::ScalarValue> scalars;  // of the call and one more

  RowShifts(Arena& arena, const Prepared& plan);

  // Finds shift and slope. True: the block is to run Prepared::relative.
  bool start(const Call& call, const Sequence& sequence, std::int64_t first_head,
             const Block& block) const;
  void find_of_tile(const Call& call, const Sequence& sequence, const Block& block,
                    std::int32_t k_first) const;
};

// What score_mod makes of a block's scores: Prepared::mod, or Prepared::relative if lines are
// taken apart. Empty if scores stay as they are.
class BlockMod {
 public:
  BlockMod(const RowShifts& shifts, std::span<std::byte> state) : shifts_(shifts), state_(state) {}

  void start(const Call& call, const Sequence& sequence, std::int64_t first_head,
             const Block& block);
  void tile(std::int32_t k_first, int columns);  // finds RowShifts::of_tile too

  bool relative() const { return relative_; }
  explicit operator bool() const { return program_.has_value(); }
  BlockProgram* operator->() { return &*program_; }

 private:
  RowShifts shifts_;
  std::span<std::byte> state_;
  const Call* call_ = nullptr;
  Sequence sequence_;
  Block block_;
  bool relative_ = false;
  std::optional<BlockProgram> program_;
};

}  // namespace fovea::cpu

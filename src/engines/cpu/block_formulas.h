// A Program's formulas over one block of query rows: bits of the scores that a mask keeps, scores
// modified by a score_mod, and bits of what dropout keeps. Used by one worker; knows which rows
// belong to which head.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engines/cpu/call.h"
#include "engines/cpu/strips/strip.h"

namespace fovea::cpu {

// Calls body(strip) for every strip of the part.
template <class Body>
void for_strips(const MatrixPart& part, const KernelTable& kernels, const Body& body) {
  StripRun::Strip strip;
  for (strip.row = part.first; strip.row < part.last; strip.row += kernels.strip_rows) {
    strip.rows = std::min(kernels.strip_rows, part.last - strip.row);
    for (strip.column = part.column_first; strip.column < part.column_last;
         strip.column += kernels.panel_width) {
      strip.columns = std::min(kernels.panel_width, part.column_last - strip.column);
      body(strip);
    }
  }
}

// One program on one block. If a block has several heads, values of (b, h) and of q are computed
// again for each head, which costs little: such blocks have few rows.
class BlockProgram {
 public:
  // `scalars`: empty for those of the call; else one more than those, the last set by tile() to the
  // middle of the tile.
  BlockProgram(const StripProgram& program, void* state, const Call& call, const QueryBlock& block,
               std::span<ir::ScalarValue> scalars = {})
      : run_(program, state, block_rows, tile_columns),
        call_(call),
        block_(block),
        scalars_(scalars) {}

  void tile(std::int32_t k_first, int columns);

  // Calls body(strip, base) for every strip of the part, after the values of the strip's head were
  // computed. Rows of strips count within their head: `base` is the head's first row in the block.
  template <class Body>
  void for_strips(const MatrixPart& part, const Body& body);

  StripRun& run() { return run_; }

 private:
  void select_head(int head);
  LeafValues leaves(int head) const;

  StripRun run_;
  const Call& call_;
  QueryBlock block_;
  std::span<ir::ScalarValue> scalars_;
  int head_ = -1;  // whose values the run has now
  std::int32_t k_first_ = 0;
  int columns_ = 0;
};

template <class Body>
void BlockProgram::for_strips(const MatrixPart& part, const Body& body) {
  for (int head = part.first / block_.rows; head * block_.rows < part.last; ++head) {
    const int base = head * block_.rows;
    const int first = std::max(part.first, base) - base;
    const int last = std::min(part.last - base, block_.rows);
    select_head(head);
    cpu::for_strips({first, last, part.column_first, part.column_last}, call_.kernels,
                    [&](const StripRun::Strip& strip) { body(strip, base); });
  }
}

// What is kept of a tile, one bit per score: [row][keep_words].
struct KeepBits {
  std::span<std::uint64_t> words;  // block_rows * keep_words

  std::uint64_t* row(int r) const { return words.data() + r * keep_words; }
  void keep_first(int rows, int columns) const;  // all rows keep columns [0, columns)
  // Columns [column_first, column_last) outside of which rows [first, last) keep nothing; the first
  // a multiple of 64. Empty if they keep nothing at all.
  MatrixPart trim(int first, int last) const;
};

// The values of Prepared::shift and Prepared::slope in the rows of a block.
struct RowShifts {
  std::span<float> shift, slope;  // [block_rows]
  std::span<double> of_tile;      // [block_rows]: to be added to the scores of a row of the tile
  std::span<std::byte> state;
  std::span<ir::ScalarValue> scalars;  // of the call and one more

  RowShifts(Arena& arena, const Prepared& plan);

  // Finds shift and slope. True: the block is to run Prepared::relative.
  bool start(const Call& call, const QueryBlock& block) const;
  void find_of_tile(const Call& call, const QueryBlock& block, std::int32_t k_first) const;
};

// What formulas find out for one worker, and the memory that they need for it.
struct FormulaMemory {
  FormulaMemory(Arena& arena, const Prepared& plan);

  KeepBits keep;
  RowShifts shifts;
  std::span<std::byte> mask_state, mod_state;
};

// What a Program makes of a block's scores, tile by tile.
class BlockFormulas {
 public:
  BlockFormulas(const Call& call, const FormulaMemory& memory);

  void start(const QueryBlock& block);
  // Goes to a tile: finds RowShifts::of_tile and which of its scores are kept. True: KeepBits says
  // which. False: all are, and rows are whole vectors.
  bool start_tile(const Tile& tile, int columns);
  // Calls body(part) for groups of rows of such a tile, cut to the columns that they keep.
  template <class Body>
  void for_kept(const Body& body) const;

  // Prepared::mod, or Prepared::relative if lines are taken apart; null if scores stay as they are.
  BlockProgram* mod() { return mod_ ? &*mod_ : nullptr; }
  bool relative() const { return relative_; }

  bool drops() const { return dropout_ > 0; }
  float drop_scale() const { return 1 / (1 - dropout_); }
  // Bits of what is not dropped: `columns` scores of a row, from column `first` of the tile on.
  void draw(int row, int first, int columns, std::uint64_t* out) const;

 private:
  const Call& call_;
  const FormulaMemory& memory_;
  float dropout_;
  DropoutRow drawn_;
  QueryBlock block_;
  std::optional<BlockProgram> mask_, mod_;
  bool relative_ = false;
  std::int32_t k_first_ = 0;
};

template <class Body>
void BlockFormulas::for_kept(const Body& body) const {
  const int rows = block_.all_rows();
  for (int first = 0; first < rows; first += trim_rows) {
    const MatrixPart part = memory_.keep.trim(first, std::min(rows, first + trim_rows));
    if (part.column_first < part.column_last) body(part);
  }
}

}  // namespace fovea::cpu

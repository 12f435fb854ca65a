// The forward: blocks of query rows against tiles of keys, with the online softmax. A block belongs
// to one task; if few rows see many keys, the keys are split and the splits merged in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engines/cpu/block_formulas.h"
#include "engines/cpu/call.h"
#include "engines/cpu/keys.h"

namespace fovea::cpu {

// The memory of one worker.
struct ForwardWorker {
  ForwardWorker(Arena& arena, const Prepared& plan, const Sizes& sizes);

  Panels q, scores, o;
  Panels p_pairs;  // Prepared::pairs: probabilities as bf16
  // [block_rows], as SoftmaxTile has them
  std::span<float> row_max, reference, row_sum, rescale;
  std::span<double> shifted_max, shifted_reference;
  FormulaMemory formulas;
  KeyTiles own_tile;  // if each head's keys are read once: see shares_keys()
};

// A row's sums over its keys, as SoftmaxTile has them, and its value of Prepared::shift.
struct RowSums {
  double row_max, reference;
  float sum, shift;
};

// Results of splits of the keys, to be merged: [wave][count][rows of a group].
struct SplitResults {
  std::int64_t count = 1;  // splits, most of any sequence
  std::int64_t rows = 0;   // of a group, most of any sequence that is split
  std::span<RowSums> sums;
  Panels o;
  std::span<std::uint32_t> done;  // [wave][groups() + 1]: see MergeCount

  std::int64_t groups() const { return ceil_div(count, splits_of_piece); }
  std::int64_t row(std::int64_t head_in_wave, std::int64_t split, std::int64_t row_in_group) const {
    return (head_in_wave * count + split) * rows + row_in_group;
  }
};

// The memory of one call.
struct ForwardMemory {
  ForwardMemory(Arena& arena, const Prepared& plan, const Sizes& sizes);

  std::span<ir::ScalarValue> scalars;
  WaveKeys keys;
  SplitResults splits;
  std::span<float> row_max;  // of all rows, if the caller wants max_logit but not row_max
  Copies<ForwardWorker> workers;
};

void forward(const Call& call, const ForwardMemory& memory);

}  // namespace fovea::cpu

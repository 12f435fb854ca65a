// The forward: blocks of query rows against tiles of keys, with the online softmax. A block belongs
// to one task; if few rows see many keys, the keys are split and the parts merged in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engines/cpu/block_formulas.h"
#include "engines/cpu/call.h"
#include "engines/cpu/keys.h"

namespace fovea::cpu {

// What one worker needs. The constructor lays it out, or measures it.
struct ForwardWorker {
  ForwardWorker(Arena& arena, const Prepared& plan, const Sizes& sizes);

  Panels q, scores, o;
  Panels p_pairs;  // Prepared::pairs: probabilities as bf16
  // [block_rows], as SoftmaxTile has them
  std::span<float> row_max, reference, row_sum, rescale;
  std::span<double> shifted_max, shifted_reference;
  KeepBits keep;
  std::span<std::byte> mask_state, mod_state;
  RowShifts shifts;
  KeyTiles own_tile;  // if a head's keys are read once
};

// Results of parts of the keys, to be merged: [wave][splits][rows of a group].
struct Parts {
  std::int64_t splits = 1;  // most of any sequence
  std::int64_t rows = 0;    // of a group, most of any sequence that is split
  std::span<double> row_max, reference;
  std::span<float> row_sum, shift;
  Panels o;
  std::span<std::uint32_t> done;  // [wave][groups() + 1]: see MergeCount

  std::int64_t groups() const { return ceil_div(splits, splits_of_piece); }
  std::int64_t row(std::int64_t head_in_wave, std::int64_t split, std::int64_t row_in_group) const {
    return (head_in_wave * splits + split) * rows + row_in_group;
  }
};

// What one call needs besides.
struct ForwardMemory {
  ForwardMemory(Arena& arena, const Prepared& plan, const Sizes& sizes);

  std::span<ir::ScalarValue> scalars;
  WaveKeys keys;
  Parts parts;
  std::span<float> row_max;  // of all rows, if max_logit is asked for and they are not
  std::size_t worker_bytes = 0;
  std::span<std::byte> workers;
};

void forward(const Call& call, const ForwardMemory& memory);

// Shared by block_forward.cpp and rows_out.cpp. ------------------------------------------------

// A row's sums when all its keys are done: as SoftmaxTile has them, with Prepared::shift.
struct RowSums {
  double row_max, reference;
  float sum, shift;
};
struct RowResult {
  float factor;  // what its output is multiplied with
  float lse;
  float row_max;
};
RowResult finish_row(const RowSums& sums, float sink);

// Where a call's row results go.
void write_row(const Call& call, const ForwardMemory& memory, std::int64_t at,
               const RowResult& result);
float sink_of(const Call& call, std::int64_t head);  // -inf if there is none

// Parts are merged in two steps, so that at the end of a call one worker has little left to do:
// splits_of_piece neighbours, then what became of these. The second step writes the head's rows.
struct PartGroup {
  std::int64_t head_in_wave = 0, number = 0;
};
void merge_group(const Call& call, const Parts& parts, const Wave& wave, const PartGroup& group);
void merge_head(const Call& call, const ForwardMemory& memory, const Wave& wave,
                std::int64_t head_in_wave);
void write_rows_of_no_sequence(const Call& call, const ForwardMemory& memory);
void write_max_logit(const Call& call, const ForwardMemory& memory);

}  // namespace fovea::cpu

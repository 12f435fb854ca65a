// What a forward writes besides the blocks of its sequences: merged splits, rows that belong to no
// sequence, and the largest score of each head.
#pragma once

#include <cstdint>

#include "engines/cpu/forward.h"

namespace fovea::cpu {

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

// Splits are merged in two steps, so that little is left for the last worker of a call: first
// groups of splits_of_piece neighbours, then the groups. The second step writes the head's rows.
struct SplitGroup {
  std::int64_t head_in_wave = 0, number = 0;
};
void merge_group(const Call& call, const SplitResults& splits, const Wave& wave,
                 const SplitGroup& group);
void merge_head(const Call& call, const ForwardMemory& memory, const Wave& wave,
                std::int64_t head_in_wave);
void write_rows_of_no_sequence(const Call& call, const ForwardMemory& memory);
void write_max_logit(const Call& call, const ForwardMemory& memory);

}  // namespace fovea::cpu

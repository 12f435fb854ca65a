// What a forward writes besides the blocks of its sequences: merged parts, rows that belong to no
// sequence, and the largest score of each head.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "engines/cpu/forward.h"
#include "engines/cpu/gaps.h"
#include "ir/arith.h"

namespace fovea::cpu {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();
constexpr double nothing = -std::numeric_limits<double>::infinity();

// One row of a group whose keys were split.
struct SplitRow {
  std::int64_t head_in_wave = 0, group = 0, row_in_group = 0;
};

// Its parts are added up in order, into the first one. Whoever does the last part of a head does
// this for all of its rows while others wait: sums stay in registers.
RowResult merge(const Call& call, const Parts& parts, const Sequence& sequence, const SplitRow& row,
                float sink) {
  const std::int64_t splits = split_count(sequence.q_length, sequence.k_length);
  const int width = call.kernels.panel_width;
  const auto at = [&](std::int64_t split) {
    return parts.row(row.head_in_wave, split, row.row_in_group);
  };
  const auto of = [&](std::int64_t split) { return static_cast<std::size_t>(at(split)); };
  RowSums sums{nothing, nothing, 0, parts.shift[of(0)]};
  for (std::int64_t s = 0; s < splits; ++s) {
    sums.row_max = ir::arith::maximum(sums.row_max, parts.row_max[of(s)]);
    sums.reference = ir::arith::maximum(sums.reference, parts.reference[of(s)]);
  }
  float factor[most_splits];
  for (std::int64_t s = 0; s < splits; ++s) {
    const double moved = parts.reference[of(s)] - sums.reference;
    factor[s] = sums.reference == nothing ? 1.0f : static_cast<float>(std::exp2(moved));
    sums.sum += parts.row_sum[of(s)] * factor[s];
  }
  constexpr int together = 32;
  for (std::int64_t c = 0; c < call.sizes.dv; c += together) {
    float* const first =
        from_row(from_column(parts.o, c / width * width), at(0), width).data + c % width;
    const float* part = first;
    float sum[together] = {};
    for (std::int64_t s = 0; s < splits; ++s, part += parts.rows * width) {
      for (int i = 0; i < together; ++i) sum[i] += part[i] * factor[s];
    }
    std::copy_n(sum, together, first);
  }
  return finish_row(sums, sink);
}

void merge_head(const Call& call, const ForwardMemory& memory, const Sequence& sequence,
                SplitRow row) {
  const int width = call.kernels.panel_width;
  const std::int64_t b = call.batch(sequence);
  const std::int64_t heads = call.heads_per_group();
  for (; row.row_in_group < heads * sequence.q_length; ++row.row_in_group) {
    const std::int64_t head = row.group * heads + row.row_in_group / sequence.q_length;
    const std::int64_t to = sequence.q_first + row.row_in_group % sequence.q_length;
    const RowResult result = merge(call, memory.parts, sequence, row, sink_of(call, head));
    write_row(call, memory, call.geometry.row_number(sequence.b, head, to), result);
    const std::int64_t from = memory.parts.row(row.head_in_wave, 0, row.row_in_group);
    call.kernels.unpack(from_row(memory.parts.o, from, width), 1, static_cast<int>(call.sizes.dv),
                        &result.factor, call.rows(call.bound.o, call.baked.o, b, head, to));
  }
}

}  // namespace

RowResult finish_row(const RowSums& sums, float sink) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const auto shift = static_cast<double>(sums.shift);
  const bool empty = sums.reference == nothing && sums.sum == 0;
  const double most = empty ? nothing : sums.row_max + shift;
  // A NaN or +inf among the scores makes the sum NaN; the maximum then says which it was.
  if (sums.sum != sums.sum || most != most || most == -nothing) {
    const float larger = most == -nothing ? -minus_infinity : nan;
    return {nan, larger, larger};
  }
  if (most == nothing) return {0, sink, minus_infinity};
  // exp(s) summed: e^base * sum, and the sink beside it.
  const double base = sums.reference * std::numbers::ln2 + shift;
  const double lse_of_scores = base + std::log(static_cast<double>(sums.sum));
  const double beside = std::exp(static_cast<double>(sink) - lse_of_scores);
  return {static_cast<float>(1 / (static_cast<double>(sums.sum) * (1 + beside))),
          static_cast<float>(beside > 1e300 ? static_cast<double>(sink)
                                            : lse_of_scores + std::log1p(beside)),
          static_cast<float>(most)};
}

void write_row(const Call& call, const ForwardMemory& memory, std::int64_t at,
               const RowResult& result) {
  if (call.baked.lse) static_cast<float*>(call.bound.lse)[at] = result.lse;
  if (call.baked.row_max) static_cast<float*>(call.bound.row_max)[at] = result.row_max;
  if (!memory.row_max.empty()) memory.row_max[static_cast<std::size_t>(at)] = result.row_max;
}

float sink_of(const Call& call, std::int64_t head) {
  return call.baked.sink ? static_cast<const float*>(call.bound.sink)[head] : minus_infinity;
}

void merge_parts(const Call& call, const ForwardMemory& memory, const Wave& wave,
                 std::int64_t head_in_wave) {
  const std::int64_t head = wave.first + head_in_wave;
  const Sequence sequence = call.geometry.sequence(head / call.sizes.hkv);
  if (split_count(sequence.q_length, sequence.k_length) == 1) return;
  merge_head(call, memory, sequence, {head_in_wave, head % call.sizes.hkv, 0});
}

void write_rows_of_no_sequence(const Call& call, const ForwardMemory& memory) {
  for_gaps(call, /*of_keys=*/false, [&](const RowRange& range) {
    write_zeros({call.bound.o, call.baked.o.dtype, call.sizes.h, call.sizes.dv}, range);
    for (std::int64_t head = 0; head < call.sizes.h; ++head) {
      for (std::int64_t row = range.first; row < range.last; ++row) {
        write_row(call, memory, call.geometry.row_number(range.b, head, row),
                  {0, minus_infinity, minus_infinity});
      }
    }
  });
}

void write_max_logit(const Call& call, const ForwardMemory& memory) {
  const float* const rows = memory.row_max.empty() ? static_cast<const float*>(call.bound.row_max)
                                                   : memory.row_max.data();
  for (std::int64_t head = 0; head < call.sizes.h; ++head) {
    float most = minus_infinity;
    for (std::int64_t b = 0; b < call.geometry.batches(); ++b) {
      const std::int64_t first = call.geometry.row_number(b, head, 0);
      for (std::int64_t row = 0; row < call.geometry.q_rows(); ++row) {
        most = ir::arith::maximum(most, rows[first + row]);
      }
    }
    static_cast<float*>(call.bound.max_logit)[head] = most;
  }
}

}  // namespace fovea::cpu

#include "engines/cpu/rows_out.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "engines/cpu/gaps.h"
#include "ir/arith.h"

namespace fovea::cpu {
namespace {

constexpr double nothing = -std::numeric_limits<double>::infinity();

// One row of a group whose keys were split.
struct SplitRow {
  std::int64_t head_in_wave = 0, row_in_group = 0;
};

// Splits first, first + step, ... of its keys.
struct SplitRange {
  std::int64_t first = 0, step = 1, count = 0;
};

// Adds splits up in order, into the first of them. Written so that sums stay in registers, since
// other workers wait for the one that merges.
void merge(const Call& call, const SplitResults& splits, const SplitRow& row,
           const SplitRange& range) {
  const int width = call.kernels.panel_width;
  const auto at = [&](std::int64_t i) {
    return splits.row(row.head_in_wave, range.first + i * range.step, row.row_in_group);
  };
  const auto sums = [&](std::int64_t i) -> RowSums& {
    return splits.sums[static_cast<std::size_t>(at(i))];
  };
  RowSums all{nothing, nothing, 0, sums(0).shift};
  for (std::int64_t i = 0; i < range.count; ++i) {
    all.row_max = ir::arith::maximum(all.row_max, sums(i).row_max);
    all.reference = ir::arith::maximum(all.reference, sums(i).reference);
  }
  float factor[most_splits];
  for (std::int64_t i = 0; i < range.count; ++i) {
    const double moved = sums(i).reference - all.reference;
    factor[i] = all.reference == nothing ? 1.0f : static_cast<float>(std::exp2(moved));
    all.sum += sums(i).sum * factor[i];
  }
  sums(0) = all;
  constexpr int together = 32;
  for (std::int64_t c = 0; c < call.sizes.dv; c += together) {
    float* const first =
        from_row(from_column(splits.o, c / width * width), at(0), width).data + c % width;
    const float* from = first;
    float sum[together] = {};
    for (std::int64_t i = 0; i < range.count; ++i, from += range.step * splits.rows * width) {
      for (int j = 0; j < together; ++j) sum[j] += from[j] * factor[i];
    }
    std::copy_n(sum, together, first);
  }
}

// A head whose keys are split.
struct SplitHead : KeyHead {
  SplitHead(const Call& call, const KeyHead& head)
      : KeyHead(head),
        count(split_count(sequence.q_length, sequence.k_length)),
        rows(call.heads_per_group() * sequence.q_length) {}
  std::int64_t count, rows;  // of its splits; of each
};

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

void merge_group(const Call& call, const SplitResults& splits, const Wave& wave,
                 const SplitGroup& group) {
  const SplitHead head(call, call.key_head(wave.first + group.head_in_wave));
  const std::int64_t first = group.number * splits_of_piece;
  const SplitRange range{first, 1, std::min<std::int64_t>(splits_of_piece, head.count - first)};
  for (std::int64_t row = 0; row < head.rows && range.count > 1; ++row) {
    merge(call, splits, {group.head_in_wave, row}, range);
  }
}

void merge_head(const Call& call, const ForwardMemory& memory, const Wave& wave,
                std::int64_t head_in_wave) {
  const SplitHead split(call, call.key_head(wave.first + head_in_wave));
  if (split.count == 1) return;  // its rows are written
  const SplitResults& splits = memory.splits;
  const Sequence& sequence = split.sequence;
  const SplitRange groups{0, splits_of_piece, ceil_div(split.count, splits_of_piece)};
  for (std::int64_t row = 0; row < split.rows; ++row) {
    merge(call, splits, {head_in_wave, row}, groups);
    const std::int64_t from = splits.row(head_in_wave, 0, row);
    const std::int64_t head = split.group * call.heads_per_group() + row / sequence.q_length;
    const std::int64_t to = sequence.q_first + row % sequence.q_length;
    const RowResult result =
        finish_row(splits.sums[static_cast<std::size_t>(from)], sink_of(call, head));
    write_row(call, memory, call.geometry.row_number(sequence.b, head, to), result);
    call.kernels.unpack(from_row(splits.o, from, call.kernels.panel_width), 1,
                        static_cast<int>(call.sizes.dv), &result.factor,
                        call.rows(call.bound.o, call.baked.o, call.batch(sequence), head, to));
  }
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

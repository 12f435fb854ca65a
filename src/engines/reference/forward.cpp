// The forward, as docs/semantics.md defines it:
//   s = score_mod(scale * dot(Q, K)),  lse = log(sum of exp(s) over what is kept [+ exp(sink)]),
//   O = sum of dropout(exp(s - lse)) * V.
#include <algorithm>
#include <cmath>

#include "engines/reference/call.h"
#include "ir/arith.h"

namespace fovea::reference {
namespace {

void write_row_value(const ReferenceCall& call, void* rows, std::int64_t at, double value) {
  if (rows != nullptr) write_number(rows, call.row_type, at, value);
}

// Rows that no loop visits, past a sequence's length or in no sequence, keep what is written here.
void write_empty_rows(ReferenceCall& call) {
  std::ranges::fill(call.scratch.o_row, 0.0);
  std::ranges::fill(call.scratch.per_head, minus_infinity);
  const Rows o(call.bound.o, call.baked.o.dtype);
  for (std::int64_t b = 0; b < call.geometry.batches(); ++b) {
    for (std::int64_t h = 0; h < call.bound.sizes.h; ++h) {
      for (std::int64_t row = 0; row < call.geometry.q_rows(); ++row) {
        o.write(b, h, row, call.scratch.o_row);
        const std::int64_t at = call.geometry.row_number(b, h, row);
        if (call.baked.lse) write_row_value(call, call.bound.lse, at, minus_infinity);
        if (call.baked.row_max) write_row_value(call, call.bound.row_max, at, minus_infinity);
      }
    }
  }
}

// log(sum of exp(s) + exp(sink)). Shifted by the largest term so that nothing overflows, but not by
// an infinite one: inf - inf would be NaN where the definition gives inf.
double log_sum_exp(std::span<const double> scores, double sink, double row_max) {
  const double largest = ir::arith::maximum(row_max, sink);
  const double shift = std::isinf(largest) ? 0 : largest;
  double sum = std::exp(sink - shift);
  for (const double s : scores) sum += std::exp(s - shift);  // exp(-inf) is 0: not kept
  return shift + std::log(sum);
}

void forward_row(ReferenceCall& call, const Sequence& sequence, std::int64_t h, std::int64_t i) {
  const std::int64_t row = sequence.q_first + i;
  const auto scores = call.scratch.scores.first(static_cast<std::size_t>(sequence.k_length));
  const std::span<double> o_row = call.scratch.o_row;
  Rows(call.bound.q, call.baked.q.dtype).read(sequence.b, h, row, call.scratch.q_row);

  Point point = call.point(sequence, h, i);
  double row_max = minus_infinity;
  for (std::int64_t j = 0; j < sequence.k_length; ++j) {
    call.move_to_key(point, sequence, j);
    double& s = scores[static_cast<std::size_t>(j)];
    s = call.score(point, j);
    row_max = ir::arith::maximum(row_max, s);
  }
  const double lse = log_sum_exp(scores, call.sink(h), row_max);

  std::ranges::fill(o_row, 0.0);
  for (std::int64_t j = 0; j < sequence.k_length; ++j) {
    const double s = scores[static_cast<std::size_t>(j)];
    if (s == minus_infinity) continue;  // not kept: V is not read, not even times 0
    call.move_to_key(point, sequence, j);
    add_scaled(o_row, std::exp(s - lse) * call.dropout.factor(point), call.v_row(j));
  }

  Rows(call.bound.o, call.baked.o.dtype).write(sequence.b, h, row, o_row);
  const std::int64_t at = call.geometry.row_number(sequence.b, h, row);
  if (call.baked.lse) write_row_value(call, call.bound.lse, at, lse);
  if (call.baked.row_max) write_row_value(call, call.bound.row_max, at, row_max);
  double& max_logit = call.scratch.per_head[static_cast<std::size_t>(h)];
  max_logit = ir::arith::maximum(max_logit, row_max);
}

}  // namespace

void forward(ReferenceCall& call) {
  const Sizes& sizes = call.bound.sizes;
  write_empty_rows(call);
  for (std::int64_t b = 0; b < sizes.b; ++b) {
    const Sequence sequence = call.geometry.sequence(b);
    for (std::int64_t g = 0; g < sizes.hkv; ++g) {
      call.read_keys(sequence, g);
      const std::int64_t first = g * call.heads_per_group();
      for (std::int64_t h = first; h < first + call.heads_per_group(); ++h) {
        for (std::int64_t i = 0; i < sequence.q_length; ++i) forward_row(call, sequence, h, i);
      }
    }
  }
  if (!call.baked.max_logit) return;
  for (std::int64_t h = 0; h < sizes.h; ++h) {
    write_row_value(call, call.bound.max_logit, h,
                    call.scratch.per_head[static_cast<std::size_t>(h)]);
  }
}

}  // namespace fovea::reference

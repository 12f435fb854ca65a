// The middle of a backward's tile: from scores and dP to P and dS, strip by strip, so that a
// modifier's values are computed once and stay in the first-level cache for its derivative.
#include <algorithm>

#include "engines/cpu/key_chunk.h"

namespace fovea::cpu {

void KeyChunkBackward::find_drops() {
  const auto k_first = static_cast<std::int32_t>(tile_ * tile_columns + sequence_.k_offset);
  for (int row = 0; row < block_.all_rows(); ++row) {
    const LeafValues leaves = call_.leaves(sequence_, first_head_ + row / block_.rows);
    const auto q =
        static_cast<std::int32_t>(block_.position + row % block_.rows + sequence_.q_offset);
    dropout_.bits(kernels_, leaves, q, k_first, keys_.columns, mine_.drop.row(row));
  }
}

void KeyChunkBackward::strips(const Part& part, bool masked) {
  if (mod_) {
    mod_->for_strips(part, kernels_,
                     [&](const StripRun::Strip& one, int base) { strip(one, base, masked); });
    return;
  }
  StripRun::Strip one;
  for (one.row = part.first; one.row < part.last; one.row += kernels_.strip_rows) {
    one.rows = std::min(kernels_.strip_rows, part.last - one.row);
    for (one.column = part.column_first; one.column < part.column_last;
         one.column += kernels_.panel_width) {
      one.columns = std::min(kernels_.panel_width, part.column_last - one.column);
      strip(one, 0, masked);
    }
  }
}

// `base`: the first row of the strip's head in the block.
void KeyChunkBackward::strip(StripRun::Strip at, int base, bool masked) {
  const int row = base + at.row, width = kernels_.panel_width;
  float* const scores = from_row(from_column(mine_.scores, at.column), row, width).data;
  float* const grad_p = from_row(from_column(mine_.grad_p, at.column), row, width).data;
  at.score = scores;
  SoftmaxBackward x;
  x.scores = mod_ ? modified_scores(at) : scores;
  x.grad_p = grad_p;
  x.p = grad_p;
  const bool direct = !mod_ || (call_.plan.grad_passes && captured_ == nullptr);
  x.grad = direct ? scores : mine_.grad_strip.data();
  x.rows = at.rows;
  x.columns = at.columns;
  x.keep = masked ? mine_.keep.row(row) : nullptr;
  x.drop = dropout_.any() ? mine_.drop.row(row) : nullptr;
  x.drop_scale = dropout_.scale();
  x.keep_words = keep_words;
  x.keep_shift = at.column;
  x.lse = mine_.lse.data() + row;
  x.row_term = row_term_ + row;
  x.live = mine_.live.data();
  kernels_.softmax_backward(x);
  if (!direct) modified_gradients(at, row, scores);
}

// As a strip of its own, unless it lies like one.
const float* KeyChunkBackward::modified_scores(StripRun::Strip& at) {
  StripRun& run = mod_->run();
  run.elements(0, at);
  const StripValue value = run.value(score_root);
  if (value.row_step == kernels_.panel_width && value.column_step == 1) return value.f32();
  kernels_.spread(value.f32(), value.row_step, value.column_step, at.rows, at.columns, nullptr,
                  mine_.score_strip.data());
  return mine_.score_strip.data();
}

void KeyChunkBackward::modified_gradients(const StripRun::Strip& at, int row, float* grad_scores) {
  StripRun& run = mod_->run();
  StripRun::Strip second = at;
  second.grad = mine_.grad_strip.data();
  run.elements(1, second);
  if (captured_ != nullptr) {
    captured_->add(lane_, run, first_captured_root, second, mine_.live.data());
    if (call_.plan.captured.row_terms() != 0) {
      const Panels p = from_row(from_column(mine_.grad_p, at.column), row, kernels_.panel_width);
      captured_->balance(run, first_captured_root, second, {p.data, row, mine_.row_sums, kernels_});
    }
  }
  const StripValue value = run.value(gradient_root);
  kernels_.spread(value.f32(), value.row_step, value.column_step, at.rows, at.columns,
                  mine_.live.data(), grad_scores);
}

void KeyChunkBackward::store_row_sums() const {
  const std::size_t terms = call_.plan.captured.row_terms();
  const std::int64_t first =
      ((head_in_wave_ * memory_.chunks + chunk_) * memory_.queries.blocks + block_index_) *
          block_rows +
      first_row_;
  for (int r = 0; r < block_.all_rows(); ++r) {
    const auto row = static_cast<std::size_t>(first + r);
    memory_.row_totals[row] = {mine_.row_sums.sum(BalanceSums::gradients, r),
                               mine_.row_sums.sum(BalanceSums::probabilities, r)};
    for (std::size_t i = 0; i < terms; ++i) {
      memory_.row_terms[row * terms + i] = {mine_.row_sums.sum(BalanceSums::first_term + i, r),
                                            mine_.row_sums.at(i, r)};
    }
  }
}

}  // namespace fovea::cpu

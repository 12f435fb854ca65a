// After backward.h: dQ from its f32 sums, in its type and strides, and gradients of captured
// tensors if they have few elements. The block has the threads of backward.h and reads the sums in
// the order in which that wrote them. Grid: query tiles x h x sequences, in one row, query tiles
// fastest.
#pragma once

#include "backward_place.h"
#include "captured_write.h"
#include "careful_backward.h"

namespace fovea::device {

// One piece of 16 x 8 sums, as multiply_add lays it out. Says whether this thread has a NaN.
template <class Config>
FOVEA_DEVICE bool write_query_rows(const Arguments& a, const Sequence& s, int h, int position,
                                   int feature, const Floats4& x) {
  using GradQ = typename Config::GradQ;
  const TensorArgument& to = a.call.grad_q;
  const int exist = a.call.q_starts != nullptr ? s.q_length : a.call.sq;
  const bool pairs = to.copy_bytes >= 4 && to.copy_bytes >= 2 * bytes_of<GradQ>;
  bool nan = false;
  FOVEA_UNROLL for (int r = 0; r < 2; ++r) {
    const int at = position + 8 * r;
    if (at >= exist) continue;
    const bool counts = at < s.q_length;
    const long long row = s.b * to.batch + h * to.head + (s.q_first + at) * to.position;
    const float left = counts ? r == 0 ? x.x : x.z : 0.0f;
    const float right = counts ? r == 0 ? x.y : x.w : 0.0f;
    nan |= left != left || right != right;
    if (pairs && feature + 1 < a.call.d) {
      write_pair<GradQ>(to.data, row + feature, left, right);
    } else {
      if (feature < a.call.d) write_element<GradQ>(to.data, row + feature * to.feature, left);
      if (feature + 1 < a.call.d) {
        write_element<GradQ>(to.data, row + (feature + 1) * to.feature, right);
      }
    }
  }
  return nan;
}

template <class Config>
FOVEA_DEVICE void backward_finish(const Arguments& a) {
  using Part = QueryPart<Config>;
  const CallArguments& call = a.call;
  write_captured<Config::captured_count>(a.words + Config::captured_first);
  const int tiles = (call.sq + Config::rows - 1) / Config::rows;
  const int first = block_x() % tiles * Config::rows;
  const int h = block_x() / tiles % call.h, b = block_x() / tiles / call.h;
  const Sequence s = sequence_of(call, b);
  const int exist = call.q_starts != nullptr ? s.q_length : call.sq;
  if (first >= exist) return;
  const float scale = value_of(call.scale);
  const float* const sums =
      call.grad_q_sum + sum_tile(call, s, b, h, first, Config::rows) * (Config::rows * Config::d) +
      thread_index() / 32 * Part::m * Part::n * 128;
  bool nan = false;
  FOVEA_UNROLL for (int i = 0; i < Part::m; ++i) {
    FOVEA_UNROLL for (int j = 0; j < Part::n; ++j) {
      Floats4 x = read_piece(sums + (i * Part::n + j) * 128);
      x = {x.x * scale, x.y * scale, x.z * scale, x.w * scale};
      nan |= write_query_rows<Config>(a, s, h, first + Part::row() + 16 * i + lane_index() / 4,
                                      Part::column() + 8 * j + lane_index() % 4 * 2, x);
    }
  }
  if (any_in_block(nan)) mend_queries<Config>(a, b, h, s, first);
}

}  // namespace fovea::device

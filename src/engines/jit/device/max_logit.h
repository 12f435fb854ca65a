// The largest modified score of each head, from the maxima of its rows: a block per head. NaN in
// any row gives NaN.
#pragma once

#include "arguments.h"
#include "primitives.h"

namespace fovea::device {

template <class Config>
FOVEA_DEVICE void max_logit(const Arguments& a) {
  const CallArguments& call = a.call;
  const int h = block_x();
  const int batches = call.q_starts != nullptr ? 1 : call.b;
  float largest = -infinity();
  bool nan = false;
  for (long long i = thread_index(); i < batches * call.rows_q; i += block_threads()) {
    const long long b = i / call.rows_q, row = i % call.rows_q;
    const float value = call.row_max[(b * call.h + h) * call.rows_q + row];
    nan |= value != value;
    largest = fmaxf(largest, value);
  }
  FOVEA_UNROLL for (int mask = 16; mask > 0; mask /= 2) {
    largest = fmaxf(largest, shuffle_xor(largest, mask));
  }
  const int warp = thread_index() / 32;
  if (lane_index() == 0) store_shared(static_cast<Shared>(4 * warp), largest);
  if (any_in_block(nan))
    largest = float_of_bits(0x7fc00000u);  // also a barrier
  else {
    for (int w = 0; w < block_threads() / 32; ++w) {
      largest = fmaxf(largest, load_shared<float>(static_cast<Shared>(4 * w)));
    }
  }
  if (thread_index() == 0) call.max_logit[h] = largest;
}

}  // namespace fovea::device

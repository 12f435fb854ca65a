// The gradient of the sinks, after backward_delta.h: for head h the sum over all rows of exp(sink -
// lse) (dlse - dot(dO, O)), in a fixed order. Grid: h.
#pragma once

#include "backward_place.h"

namespace fovea::device {

template <class Config>
FOVEA_DEVICE void backward_sink(const Arguments& a) {
  const CallArguments& call = a.call;
  const int h = block_x();
  const float sink = call.sink[h];
  double sum = 0;
  for (int b = 0; b < call.b; ++b) {
    const Sequence s = sequence_of(call, b);
    const long long first = row_number(call, s, h, s.q_first);
    for (int i = thread_index(); i < s.q_length; i += Config::threads) {
      const float lse = call.lse[first + i];
      if (lse == -infinity()) continue;
      sum -= static_cast<double>(exp2_approx((sink - lse) * log2_of_e)) *
             static_cast<double>(call.delta[first + i]);
    }
  }
  FOVEA_UNROLL for (int mask = 16; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
  if (lane_index() == 0) store_shared(8 * (thread_index() / 32), sum);
  sync_block();
  if (thread_index() != 0) return;
  sum = 0;
  for (int i = 0; i < Config::threads / 32; ++i) sum += load_shared<double>(8 * i);
  call.grad_sink[h] = static_cast<float>(sum);
}

}  // namespace fovea::device

// Small gradients of captured tensors, written by a kernel beside what it does: that saves a
// launch.
#pragma once

#include "captured_write.h"

namespace fovea::device {

// `count` gradients whose calls lie among a kernel's words, by all threads of its grid.
template <int count>
FOVEA_DEVICE void write_captured(const long long* words) {
  if constexpr (count > 0) {
    const auto* const calls = reinterpret_cast<const CapturedCall*>(words);
    const long long own = static_cast<long long>(block_x()) * block_threads() + thread_index();
    const long long threads = static_cast<long long>(grid_x()) * block_threads();
    FOVEA_NO_UNROLL for (int c = 0; c < count; ++c) {
      const CapturedCall& call = calls[c];
      FOVEA_NO_UNROLL for (long long i = own; i < call.count; i += threads) {
        write_gradient(call, gradient_offset(call, i), sum_of(call, i));
      }
    }
  }
}

}  // namespace fovea::device

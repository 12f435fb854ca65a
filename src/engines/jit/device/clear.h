// Zeros in a call's workspace, before the kernels that count or sum there: in a kernel of its own
// or as part of another one.
#pragma once

#include "captured_arguments.h"
#include "primitives.h"

namespace fovea::device {

// By all threads of the grid.
FOVEA_DEVICE void clear(const ClearArguments& call) {
  const long long first = static_cast<long long>(block_x()) * block_threads() + thread_index();
  const long long step = static_cast<long long>(grid_x()) * block_threads();
  auto* const to = static_cast<Words4*>(call.data);
  for (long long i = first; i < call.pieces; i += step) to[i] = Words4{0, 0, 0, 0};
}

}  // namespace fovea::device

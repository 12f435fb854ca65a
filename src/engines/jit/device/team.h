// Threads that work together: a block, or a part of it.
#pragma once

#include "primitives.h"

namespace fovea::device {

struct Team {
  int thread, threads;
};
FOVEA_DEVICE Team whole_block() { return {thread_index(), block_threads()}; }

}  // namespace fovea::device

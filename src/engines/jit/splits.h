// How a forward of few queries splits its keys over the GPU (device/decode.h): by sizes alone, so
// that the workspace is known before the call.
#pragma once

#include <cstdint>

#include "attention/problem.h"

namespace fovea::jit {

// Keys of a split, a multiple of 64; 0: nothing is split. With `deterministic` it does not depend
// on what else is in the batch.
int split_keys(const Problem& baked, const Sizes& sizes, int multiprocessors);

// Splits of all sequences.
std::int64_t split_slots(const Problem& baked, const Sizes& sizes, int keys);

}  // namespace fovea::jit

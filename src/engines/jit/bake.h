// What a plan of engine jit depends on: formulas, types and features, and the class of the head
// dims. Sizes, strides, scale, offsets and values come with each call.
#pragma once

#include <cstdint>

#include "attention/engine.h"

namespace fovea::jit {

// The most that kernels take; a backward takes less.
inline constexpr std::int64_t widest_d = 576, widest_dv = 512, widest_backward = 320;
inline constexpr std::int64_t widest_chunk = 256;  // of dv, which one block computes

// What sizes.sq of a baked Problem says: whether a forward has so few queries that its keys are
// split over the GPU (device/decode.h). Every plan runs every number of them, one made for many
// without splitting.
inline constexpr std::int64_t few_queries = 1, many_queries = 0;

Baking bake(const Problem& problem);

// Whether a plan has the kernels that split keys.
bool splits_keys(const Problem& baked);

// Head dims are rounded up to one of few, for which kernels are compiled. Those beyond the widest
// stay as they are, to be refused.
std::int64_t class_of_d(std::int64_t d);
std::int64_t class_of_dv(std::int64_t dv);

}  // namespace fovea::jit

// The kernels of a backward that are written for Hopper alone (device/hopper): which plans they
// take, and their tiles.
#pragma once

#include <cstdint>

#include "engines/jit/kernels.h"

namespace fovea::jit {

// What of why_no_hopper a backward alone asks.
std::string why_no_hopper_backward(const ShapeInputs& inputs);
// Which of the two that have scores: hopper/backward.h, or backward_wide.h for wide heads.
bool is_narrow_hopper_backward(const ShapeInputs& inputs);
bool is_wide_hopper_backward(const ShapeInputs& inputs);

KernelShape hopper_delta_shape(const ShapeInputs& inputs);
KernelShape hopper_backward_shape(const ShapeInputs& inputs);
KernelShape hopper_finish_shape(const ShapeInputs& inputs);

Grid over_multiprocessors(const device::CallArguments& call, const KernelShape& shape);
Grid over_queries_and_keys(const device::CallArguments& call, const KernelShape& shape);

// Words that those kernels leave for each tile of keys.
std::int64_t key_nan_words(const Sizes& sizes, const KernelShape& shape);

}  // namespace fovea::jit

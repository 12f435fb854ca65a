// The rows of the kernels' table that a backward has, and what its tiles are.
#pragma once

#include <span>

#include "engines/jit/kernels.h"

namespace fovea::jit {

std::span<const KernelRow> backward_kernel_rows();

// The tiles of device/backward.h.
Shape backward_shape(const ShapeFacts& facts);

// Floats of dQ's sums for one call: see device/backward_place.h.
std::int64_t grad_q_sum_floats(const Shape& shape, const Sizes& sizes, bool packed);

}  // namespace fovea::jit

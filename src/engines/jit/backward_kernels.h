// The rows of the kernel table for a backward, and its tiles.
#pragma once

#include <span>

#include "engines/jit/prepare.h"

namespace fovea::jit {

std::span<const KernelRow> backward_kernel_rows();

// Floats of dQ's sums in one call: see device/backward_place.h.
std::int64_t grad_q_sum_floats(const PreparedPlan& prepared, const Sizes& sizes);

// Floats of what the kernels for Hopper read of each query.
std::int64_t row_term_floats(const PreparedPlan& prepared, const Sizes& sizes);
std::int64_t query_turn_words(const PreparedPlan& prepared, const Sizes& sizes);

}  // namespace fovea::jit

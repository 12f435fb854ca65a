// Grids that kernels of forwards and backwards have in common: blocks in one dimension, since the
// others have at most 65535.
#pragma once

#include <cstdint>

#include "engines/jit/kernels.h"

namespace fovea::jit {

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// a * b blocks of the shape's warps; refuses sizes that need too many.
Grid in_line(std::int64_t a, std::int64_t b, const Shape& shape);

Grid over_heads(const device::Call& call, const Shape& shape);
// Before, between and behind packed sequences.
Grid over_gaps(const device::Call& call, const Shape& shape);
// A thread for every k - q of a head: see device/distances.h.
Grid over_distances(const device::Call& call, const Shape& shape);

}  // namespace fovea::jit

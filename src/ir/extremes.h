// Minima and maxima of a box of elements of a captured tensor.
#pragma once

#include <array>
#include <cstdint>

#include "ir/interval.h"
#include "ir/tensor_view.h"

namespace fovea::ir {

// Elements with first[i] <= index[i] <= last[i], all within the extents.
struct Part {
  std::array<std::int64_t, limits::rank> first{};
  std::array<std::int64_t, limits::rank> last{};
};

// What formulas can read there: a tensor with nothing in it reads as 0.
Range extremes(const TensorView& tensor, const Part& part);

}  // namespace fovea::ir

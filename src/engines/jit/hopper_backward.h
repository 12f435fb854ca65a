// The kernels of a backward that are written for Hopper alone (device/hopper): which plans they
// take, and their tiles.
#pragma once

#include <cstdint>

#include "engines/jit/kernels.h"

namespace fovea::jit {

// Why a plan's backward has no kernel of this tier; "": it has one.
std::string why_no_hopper_backward(const ShapeFacts& facts);
inline bool is_hopper_backward(const ShapeFacts& facts) {
  return why_no_hopper_backward(facts).empty();
}
// Which of the two that have scores: hopper/backward.h, or backward_wide.h for wide heads.
bool is_narrow_hopper_backward(const ShapeFacts& facts);
bool is_wide_hopper_backward(const ShapeFacts& facts);

Shape hopper_delta_shape(const ShapeFacts& facts);
Shape hopper_backward_shape(const ShapeFacts& facts);
Shape hopper_finish_shape(const ShapeFacts& facts);

Grid over_multiprocessors(const device::Call& call, const Shape& shape);
Grid over_queries_and_keys(const device::Call& call, const Shape& shape);

// Words that those kernels leave for each tile of keys.
std::int64_t key_nan_words(const Sizes& sizes, const Shape& shape);

}  // namespace fovea::jit

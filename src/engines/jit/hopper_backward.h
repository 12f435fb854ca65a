// The kernels of a backward that are written for Hopper alone (device/hopper): which plans they
// take, and their tiles.
#pragma once

#include <cstdint>

#include "engines/jit/kernels.h"

namespace fovea::jit {

// Why the general kernels compute this backward; empty: those for Hopper do.
std::string general_backward_because(const ShapeFacts& facts);
inline bool is_hopper_backward(const ShapeFacts& facts) {
  return general_backward_because(facts).empty();
}

Shape hopper_delta_shape(const ShapeFacts& facts);
Shape hopper_backward_shape(const ShapeFacts& facts);
Shape hopper_finish_shape(const ShapeFacts& facts);

Grid over_multiprocessors(const device::Call& call, const Shape& shape);
Grid over_queries_and_keys(const device::Call& call, const Shape& shape);

// Words that hopper/backward.h leaves for each tile of keys.
std::int64_t key_nan_words(const Sizes& sizes);

}  // namespace fovea::jit

// How captured tensors lie, as a line says it: tensor_strides="bias:1,64,4096 slopes:2". Engines
// that bake strides need to know them before a call; the others take whatever a call binds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/problem.h"

namespace fovea {

// The program must be set. Tensors that are not named are dense. Throws InvalidArgument.
void set_tensor_strides(Problem& problem, std::string_view text);
std::string tensor_strides_text(const Problem& problem);  // "" if all are dense

// Dense, last index fastest.
std::vector<std::int64_t> dense_tensor_strides(std::span<const std::int64_t> extents);

// The strides of captured tensor `slot`, given or dense.
std::vector<std::int64_t> tensor_strides(const Problem& problem, std::size_t slot);

// Without those that say no more than dense: two problems that lie alike are then equal.
void drop_dense_tensor_strides(Problem& problem);

}  // namespace fovea

// Values of a formula that change with q and with k but not with the score, and that kernels keep
// in shared memory for each tile rather than compute or load for each of its elements.
#pragma once

#include <span>
#include <vector>

#include "ir/program.h"
#include "ir/topology.h"

namespace fovea::jit {

// By place in `order`: whether a value changes with q and k only through their distance, so that
// all elements along a diagonal of a tile have the same. Positions do not wrap around: binding
// refuses offsets that would make them.
std::vector<bool> find_diagonal(const ir::Order& order);

// Whether `node` is a load t[..., q, ..., k, ...], in any order, whose other indices are uniform
// and whose elements have 2 or 4 bytes: a tile of it can be copied as it is.
bool is_cell_load(const ir::Node& node, const ir::Program& program);

}  // namespace fovea::jit

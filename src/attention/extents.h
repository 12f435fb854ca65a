// How large tensors are: the eight over positions and features, and the captured ones, whose
// declared extents name sizes of the problem. Also the strides of captured tensors, for engines
// that bake them and so must know them before a call.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/problem.h"

namespace fovea {

// By batch, head, position, feature. Under Thd the batch is 1 and the positions are all rows.
std::array<std::int64_t, 4> extents_of(const Sizes& sizes, Layout layout,
                                       const NamedTensor& tensor);

// Rows of lse: B * H * Sq, under Thd H * T. The sizes must be valid.
std::int64_t row_count(const Sizes& sizes, Layout layout);

// The value of the leaf H: `h_global` if it is given.
std::int64_t heads_seen(const Sizes& sizes, std::int32_t h_global);

// Extents of a captured tensor, in place: a call allocates nothing for them.
struct ResolvedExtents {
  std::array<std::int64_t, ir::limits::rank> extent{};
  std::size_t rank = 0;
  operator std::span<const std::int64_t>() const { return {extent.data(), rank}; }
};

// The allocated extents of a captured tensor. H has the value of the leaf H, so that a shard of
// heads binds the whole table; the other names are the problem's own sizes.
ResolvedExtents resolved_extents(const ir::TensorDecl& tensor, const Sizes& sizes,
                                 std::int32_t h_global);
std::vector<std::int64_t> captured_extents(const ir::TensorDecl& tensor, const Sizes& sizes,
                                           std::int32_t h_global);

// How many elements those are, of captured tensor `slot`. Throws InvalidArgument for more than
// 2^63.
std::int64_t declared_elements(const Problem& problem, const Sizes& sizes, std::size_t slot);

// Reads the strides of captured tensors as a problem line has them: "bias:1,64,4096 slopes:2". The
// program must be set. Tensors that are not named are dense. Throws InvalidArgument.
void set_tensor_strides(Problem& problem, std::string_view text);
std::string tensor_strides_text(const Problem& problem);  // "" if all are dense

// Dense, last index fastest.
std::vector<std::int64_t> dense_tensor_strides(std::span<const std::int64_t> extents);

// The strides of captured tensor `slot`, given or dense.
std::vector<std::int64_t> tensor_strides(const Problem& problem, std::size_t slot);

// Removes strides that are those of a dense tensor, so that equal layouts make equal problems.
void drop_dense_tensor_strides(Problem& problem);

}  // namespace fovea

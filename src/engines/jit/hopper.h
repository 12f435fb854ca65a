// The second tier of kernels: for sm_90, with 16-bit tensors that the hardware copies by tiles.
// Says what it takes, its tiles, and the tensor maps of a call. Everything else is left to the
// general kernels.
#pragma once

#include <string>

#include "engines/jit/arguments.h"
#include "engines/jit/kernels.h"

namespace fovea::jit {

// Which kernels plans are made of: FOVEA_JIT_TIER=general asks for the general ones alone.
Tier wanted_tier();

// Why a plan has no kernel of this tier; "": it has one.
std::string why_no_hopper(const ShapeInputs& inputs);
inline bool has_hopper(const ShapeInputs& inputs) { return why_no_hopper(inputs).empty(); }

KernelShape hopper_forward_shape(const ShapeInputs& inputs);
Grid over_query_tiles(const device::CallArguments& call, const KernelShape& shape);
// Whether blocks count the tiles that they take, so that the counter must be cleared before.
bool counts_query_tiles(const device::CallArguments& call, const KernelShape& shape);

// Heads of a group that share a tile of queries: as many as have room for all their queries, if the
// formula stages no values, which are those of one head.
int tile_heads(const Rendered& formula, const Sizes& sizes, const KernelShape& shape);
// Tiles of queries of a call, all heads and batches.
std::int64_t query_tiles(const Sizes& sizes, const KernelShape& shape, int tile_heads);

// Whether the tensors of this call lie as the hardware needs it: dense features, addresses and
// strides in multiples of 16 bytes, no empty tensor.
bool can_map(const device::CallArguments& call);
// Maps of q, k and v, and of a backward's grad_o, for tiles of this shape.
void pack_maps(const device::CallArguments& call, const KernelShape& shape,
               device::TensorMap* maps);
// The map of the captured tensor of 16 bits whose cells come by tiles of so many rows; false: there
// is one, but it does not lie so.
bool pack_cell_map(const Rendered& formula, const Bindings& bindings, int box_rows,
                   Arguments& arguments);

}  // namespace fovea::jit

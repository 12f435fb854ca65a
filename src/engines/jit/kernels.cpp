#include "engines/jit/kernels.h"

#include <algorithm>

#include "attention/refuse.h"
#include "engines/jit/backward_kernels.h"
#include "engines/jit/bake.h"
#include "engines/jit/hopper.h"

namespace fovea::jit {
namespace {

using device::CallArguments;

// --- shapes ---

KernelShape head_dims(const Problem& baked) {
  KernelShape shape;
  shape.d = static_cast<int>(baked.sizes.d);
  shape.dv_chunks = static_cast<int>(ceil_div(baked.sizes.dv, widest_chunk));
  shape.dv = static_cast<int>(baked.sizes.dv) / shape.dv_chunks;
  return shape;
}

// Measured on an H200 (docs/results/jit_h200.md): 32 rows to a warp, two blocks to a
// multiprocessor. Drawing dropout's numbers takes registers, so that a warp has 16 rows then.
KernelShape forward_shape(const ShapeInputs& inputs) {
  KernelShape shape = head_dims(inputs.baked);
  const int widest = std::max(shape.d, shape.dv);
  shape.warps = 4;
  if (inputs.baked.q.dtype == DType::F32) {
    shape.rows = widest <= 128 ? 128 : 64;
    shape.columns = 32;
  } else {
    shape.rows = widest <= 128 && inputs.baked.dropout == 0 ? 128 : 64;
    const bool plain = inputs.baked.dropout == 0 && !inputs.baked.program.mod();
    shape.columns = widest <= 64 && plain ? 128 : 64;
    shape.blocks = widest <= 128 ? 2 : 1;
  }
  // If tiles do not fit, they get fewer keys first, which only costs more turns of the loop.
  for (;;) {
    shape.shared_bytes = device::ForwardShared(tile_sizes(inputs, shape)).bytes;
    if (shape.shared_bytes <= inputs.shared_memory) return shape;
    if (shape.columns > 16) {
      shape.columns /= 2;
    } else if (shape.rows > 16) {
      shape.rows /= 2;
      shape.warps = std::min(shape.warps, shape.rows / 16);
    } else {
      return shape;
    }
  }
}

KernelShape decode_shape(const ShapeInputs& inputs) {
  KernelShape shape = head_dims(inputs.baked);
  shape.rows = device::decode_rows;
  shape.columns = device::decode_keys;
  int stages = inputs.baked.q.dtype == DType::F32 ? 3 : 2;  // three blocks to a multiprocessor
  for (;;) {
    shape.shared_bytes = device::DecodeShared(tile_sizes(inputs, shape), stages).bytes;
    if (shape.shared_bytes <= inputs.shared_memory || (stages == 2 && shape.warps == 1)) break;
    if (stages > 2) {
      --stages;
    } else {
      shape.warps /= 2;
    }
  }
  shape.own.push_back({"stages", stages});
  return shape;
}

KernelShape small_shape(const ShapeInputs& inputs) { return head_dims(inputs.baked); }

KernelShape max_logit_shape(const ShapeInputs& inputs) {
  KernelShape shape = head_dims(inputs.baked);
  shape.warps = 8;
  shape.shared_bytes = 4 * shape.warps;
  return shape;
}

// --- which plans have a kernel, and which calls ---

bool is_general(const ShapeInputs& inputs) { return !has_hopper(inputs); }
bool reads_distances(const ShapeInputs& inputs) {
  return has_hopper(inputs) && inputs.diagonal_words > 0;
}
bool may_split_keys(const ShapeInputs& inputs) { return splits_keys(inputs.baked); }
bool wants_max_logit(const ShapeInputs& inputs) { return inputs.baked.max_logit; }

bool has_splits(const CallArguments& call) { return call.split_keys > 0; }
// Sequences that are decoded leave nothing to the kernel for many queries if all are alike.
bool has_many_queries(const CallArguments& call) {
  const bool varies =
      call.q_starts != nullptr || call.q_lengths != nullptr || call.k_lengths != nullptr;
  return call.split_keys == 0 || varies || !device::decodes(call.sq, call.skv, call.group);
}

// --- grids ---

Grid over_queries(const CallArguments& call, const KernelShape& shape) {
  return in_line(std::int64_t{call.h} * call.b * shape.dv_chunks, ceil_div(call.sq, shape.rows),
                 shape);
}

std::int64_t group_rows(const CallArguments& call) {
  return std::min<std::int64_t>(std::int64_t{call.sq} * call.group, device::decode_group_rows);
}

Grid over_splits(const CallArguments& call, const KernelShape& shape) {
  return in_line(
      ceil_div(group_rows(call), device::decode_rows) * ceil_div(call.skv, call.split_keys),
      std::int64_t{call.hkv} * call.b * shape.dv_chunks, shape);
}

// A warp for every 32 features of a row.
Grid over_group_rows(const CallArguments& call, const KernelShape& shape) {
  return in_line(ceil_div(group_rows(call) * call.hkv * call.b *
                              std::max<std::int64_t>(ceil_div(call.dv, 32), 1),
                          shape.warps),
                 1, shape);
}

// --- the tables ---

constexpr KernelRow forward_rows[] = {
    {"forward", "forward.h", true, is_general, has_many_queries, forward_shape, over_queries},
    {"distances", "distances.h", true, reads_distances, has_many_queries, small_shape,
     over_distances},
    {"hopper_forward", "hopper/forward.h", true, has_hopper, has_many_queries, hopper_forward_shape,
     over_query_tiles, false, true},
    {"decode", "decode.h", true, may_split_keys, has_splits, decode_shape, over_splits},
    {"merge_splits", "merge_splits.h", true, may_split_keys, has_splits, small_shape,
     over_group_rows},
    {"gaps", "gaps.h", false, is_packed, nullptr, small_shape, over_gaps},
    {"max_logit", "max_logit.h", false, wants_max_logit, nullptr, max_logit_shape, over_heads},
};

}  // namespace

std::span<const KernelRow> kernel_rows(Direction direction) {
  if (direction == Direction::Forward) return forward_rows;
  return backward_kernel_rows();
}

ShapeInputs shape_inputs(const Problem& baked, const Device& device, Tier tier) {
  ShapeInputs inputs{baked, device.sm, device.shared_memory_per_block};
  inputs.multiprocessors = device.multiprocessors;
  inputs.tier = tier;
  return inputs;
}

device::TileSizes tile_sizes(const ShapeInputs& inputs, const KernelShape& shape) {
  const int element_bytes = inputs.baked.q.dtype == DType::F32 ? 4 : 2;
  return {shape.warps,      element_bytes,       shape.d,
          shape.dv,         shape.rows,          shape.columns,
          inputs.row_words, inputs.column_words, inputs.diagonal_words,
          inputs.cell_bytes};
}

bool is_packed(const ShapeInputs& inputs) { return inputs.baked.layout == Layout::Thd; }

Grid in_line(std::int64_t a, std::int64_t b, const KernelShape& shape) {
  constexpr std::int64_t most = (std::int64_t{1} << 31) - 1;
  if (b > 0 && a > most / b) refuse("sizes", a, "engine jit launches at most 2^31 - 1 blocks");
  return {static_cast<unsigned>(a * b), 1, 1, static_cast<unsigned>(32 * shape.warps)};
}

Grid over_heads(const device::CallArguments& call, const KernelShape& shape) {
  return in_line(call.h, 1, shape);
}

Grid over_gaps(const device::CallArguments& call, const KernelShape& shape) {
  return in_line(std::int64_t{call.b} + 1, 1, shape);
}

Grid over_distances(const device::CallArguments& call, const KernelShape& shape) {
  return in_line(ceil_div(std::int64_t{call.sq} + call.skv, 32 * shape.warps),
                 std::int64_t{call.h} * call.b, shape);
}

}  // namespace fovea::jit

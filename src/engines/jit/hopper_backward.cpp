#include "engines/jit/hopper_backward.h"

#include <algorithm>
#include <span>

#include "engines/jit/captured.h"
#include "engines/jit/device/hopper/backward_layout.h"
#include "engines/jit/hopper.h"

namespace fovea::jit {
namespace {

using device::CallArguments;

// Whole chunks of 64 features; what a head lacks is loaded as zeros.
constexpr int chunk = 64;
int in_chunks(std::int64_t features) { return static_cast<int>(ceil_div(features, chunk)) * chunk; }

// Heads wider than 128 have a kernel of their own, with narrower tiles.
int tile_keys(const ShapeInputs& inputs) {
  const Sizes& sizes = inputs.baked.sizes;
  return device::backward_tile_keys(static_cast<int>(sizes.d), static_cast<int>(sizes.dv));
}
bool is_wide(const ShapeInputs& inputs) { return tile_keys(inputs) == device::wide_backward_keys; }

// In the order of speed: tiles of dS, and pieces of dQ that are on their way while the next ones
// are computed (0: sums are added to global memory from registers).
struct BufferCounts {
  int ds, sums;
};
constexpr BufferCounts narrow_buffers[] = {{2, 4}, {2, 3}, {2, 2}, {2, 1}};
constexpr BufferCounts wide_buffers[] = {{2, 2}, {2, 1}, {1, 1}, {1, 0}};
std::span<const BufferCounts> buffers_of(const ShapeInputs& inputs) {
  return is_wide(inputs) ? std::span<const BufferCounts>(wide_buffers) : narrow_buffers;
}

constexpr int q_stages = 2;

// Tiles of P that one warpgroup leaves for another: what multiplies dP, and P itself for captured
// gradients.
int p_tiles(const ShapeInputs& inputs) {
  if (!is_wide(inputs)) return 0;
  return inputs.captured != nullptr && inputs.captured->hopper_reads_p() ? 2 : 1;
}

int captured_bytes(const ShapeInputs& inputs) {
  return inputs.captured == nullptr ? 0 : inputs.captured->hopper_shared_bytes();
}

device::HopperBackwardSizes sizes_of(const ShapeInputs& inputs, const BufferCounts& buffers) {
  return {in_chunks(inputs.baked.sizes.d),
          in_chunks(inputs.baked.sizes.dv),
          tile_keys(inputs),
          q_stages,
          buffers.ds,
          buffers.sums,
          p_tiles(inputs),
          inputs.row_words,
          inputs.column_words,
          inputs.diagonal_words,
          inputs.cell_bytes,
          captured_bytes(inputs)};
}

const BufferCounts* best_buffers(const ShapeInputs& inputs) {
  for (const BufferCounts& buffers : buffers_of(inputs)) {
    const device::HopperBackwardShared shared(sizes_of(inputs, buffers));
    if (shared.bytes <= inputs.shared_memory) return &buffers;
  }
  return nullptr;
}

KernelShape with_tiles(const ShapeInputs& inputs, int warps) {
  KernelShape shape;
  shape.d = in_chunks(inputs.baked.sizes.d);
  shape.dv = in_chunks(inputs.baked.sizes.dv);
  shape.rows = device::backward_queries;
  shape.columns = tile_keys(inputs);
  shape.warps = warps;
  return shape;
}

}  // namespace

bool is_narrow_hopper_backward(const ShapeInputs& inputs) {
  return has_hopper(inputs) && !is_wide(inputs);
}
bool is_wide_hopper_backward(const ShapeInputs& inputs) {
  return has_hopper(inputs) && is_wide(inputs);
}

std::string why_no_hopper_backward(const ShapeInputs& inputs) {
  const Problem& p = inputs.baked;
  if (p.grad_o.dtype != p.q.dtype) return "they take output gradients of the same type";
  if (!p.want_q) return "they compute dQ always";
  if (p.program.bprop()) return "the formula has a derivative by hand";
  if (inputs.cell_bytes > 2) return "they take captured tensors by query and key of 16 bits";
  if (inputs.captured != nullptr && inputs.captured->any_terms()) {
    const std::string why = inputs.captured->why_not_hopper();
    if (!why.empty()) return why;
    if (p.dropout > 0) return "they compute no gradients of captured tensors under dropout";
  }
  if (best_buffers(inputs) == nullptr) return "the formula stages too many values";
  return "";
}

KernelShape hopper_delta_shape(const ShapeInputs& inputs) {
  KernelShape shape = with_tiles(inputs, 4);
  shape.blocks = 8;
  shape.own = {{"row_terms", 1}};
  return shape;
}

KernelShape hopper_backward_shape(const ShapeInputs& inputs) {
  KernelShape shape = with_tiles(inputs, 16);
  const BufferCounts& buffers = *best_buffers(inputs);
  shape.shared_bytes = device::HopperBackwardShared(sizes_of(inputs, buffers)).bytes;
  shape.own = {{"q_stages", q_stages},
               {"ds_stages", buffers.ds},
               {"sum_slots", buffers.sums},
               {"p_tiles", p_tiles(inputs)},
               {"captured_bytes", captured_bytes(inputs)}};
  shape.most_blocks = inputs.multiprocessors;
  return shape;
}

KernelShape hopper_finish_shape(const ShapeInputs& inputs) { return with_tiles(inputs, 4); }

Grid over_multiprocessors(const CallArguments& call, const KernelShape& shape) {
  const std::int64_t tiles = ceil_div(call.skv, shape.columns) * call.hkv * call.b;
  return in_line(std::min<std::int64_t>(tiles, shape.most_blocks), 1, shape);
}

Grid over_queries_and_keys(const CallArguments& call, const KernelShape& shape) {
  const std::int64_t queries = ceil_div(call.sq, shape.rows) * call.h * call.b;
  return in_line(queries + ceil_div(call.skv, shape.columns) * call.hkv * call.b, 1, shape);
}

std::int64_t key_nan_words(const Sizes& sizes, const KernelShape& shape) {
  return ceil_div(sizes.skv, shape.columns) * sizes.hkv * sizes.b * 8;
}

}  // namespace fovea::jit

#include "engines/jit/hopper.h"

#include <algorithm>
#include <numeric>

#include "base/env.h"
#include "cuda/driver.h"
#include "engines/jit/device/hopper/backward_layout.h"
#include "engines/jit/device/hopper/forward_shared.h"
#include "engines/jit/hopper_backward.h"

namespace fovea::jit {
namespace {

using device::CallArguments;

// --- tiles ---

// Keys of a tile by head dims, the best first: as many as registers allow, fewer if shared memory
// is short.
struct ColumnChoice {
  int widest_d, widest_dv;
  int columns[4];
};
constexpr ColumnChoice choices[] = {
    {128, 128, {128, 96, 64, 32}},
    {192, 128, {112, 96, 64, 32}},
    {192, 192, {96, 64, 48, 32}},
    {256, 256, {80, 64, 48, 32}},
};

// Narrow heads leave room for a third warpgroup if the other warps need at most 32 registers.
// Measured on an H200: 0.49 ms against 0.57 without a mask, 0.334 against 0.344 with a causal one.
int warpgroups_of(const ShapeInputs& inputs) {
  const Problem& p = inputs.baked;
  const bool stages_values =
      inputs.row_words + inputs.column_words + inputs.diagonal_words + inputs.cell_bytes > 0;
  return std::max(p.sizes.d, p.sizes.dv) <= 64 && !stages_values && p.dropout == 0 ? 3 : 2;
}

// How many tiles of queries and of keys are in shared memory at once.
struct StageCounts {
  int q, k;
};
constexpr StageCounts all_stages[] = {{2, 3}, {2, 2}, {1, 2}};

KernelShape with_columns(const ShapeInputs& inputs, int columns, StageCounts stages) {
  KernelShape shape;
  shape.d = std::max(static_cast<int>(inputs.baked.sizes.d), 64);
  shape.dv = std::max(static_cast<int>(inputs.baked.sizes.dv), 64);
  shape.rows = warpgroups_of(inputs) * device::warpgroup_rows;
  shape.columns = columns;
  shape.warps = 4 * (shape.rows / device::warpgroup_rows + 1);
  shape.most_blocks = inputs.multiprocessors;
  shape.shared_bytes =
      device::HopperForwardShared(tile_sizes(inputs, shape), stages.q, stages.k).bytes;
  shape.own = {{"q_stages", stages.q}, {"k_stages", stages.k}};
  return shape;
}

// --- maps ---

bool can_map(const device::TensorArgument& tensor, std::int64_t batches, std::int64_t heads,
             std::int64_t rows) {
  constexpr std::int64_t furthest = std::int64_t{1} << 39;  // elements
  const std::int64_t extents[] = {batches, heads, rows};
  const std::int64_t strides[] = {tensor.batch, tensor.head, tensor.position};
  for (std::size_t i = 0; i < 3; ++i) {
    if (extents[i] < 1 || extents[i] >= std::int64_t{1} << 31) return false;
    if (extents[i] > 1 && (strides[i] <= 0 || strides[i] >= furthest)) return false;
  }
  return tensor.copy_bytes == 16;
}

struct Extents {
  std::int64_t features, rows, heads, batches;
  int box_rows;
  int box_heads = 1;
};
void write_map(const device::TensorArgument& tensor, const Extents& extents,
               device::TensorMap& to) {
  cuda::TensorMapSpec spec;
  spec.data = tensor.data;
  const std::int64_t sizes[] = {extents.features, extents.rows, extents.heads, extents.batches};
  const std::int64_t strides[] = {tensor.position, tensor.head, tensor.batch};
  for (std::size_t i = 0; i < 4; ++i) spec.extents[i] = static_cast<std::uint64_t>(sizes[i]);
  for (std::size_t i = 0; i < 3; ++i) {
    spec.stride_bytes[i] = sizes[i + 1] > 1 ? static_cast<std::uint64_t>(2 * strides[i]) : 16;
  }
  spec.box = {device::piece_columns, static_cast<std::uint32_t>(extents.box_rows),
              static_cast<std::uint32_t>(extents.box_heads), 1, 1};
  cuda::write_tensor_map(spec, &to);
}

// A captured tensor as keys, queries and slices: all its other indices lie in multiples of one
// stride. 0: they do not, or not as the hardware needs it.
struct CellSlices {
  std::int64_t stride = 0, count = 1;
};
CellSlices slices_of(const ir::TensorView& view, int q, int k) {
  CellSlices out;
  std::int64_t furthest = 0;
  for (int i = 0; i < view.rank; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (view.extent[at] < 1 || view.stride[at] < 0) return {};
    if (i == q || i == k) continue;
    out.stride = std::gcd(out.stride, view.extent[at] > 1 ? view.stride[at] : 0);
    furthest += (view.extent[at] - 1) * view.stride[at];
  }
  if (out.stride == 0) out.stride = 8;  // there is one
  out.count = furthest / out.stride + 1;
  return out;
}

}  // namespace

Tier wanted_tier() { return env_value(Env::JitTier) == "general" ? Tier::General : Tier::Best; }

std::string why_no_hopper(const ShapeInputs& inputs) {
  constexpr int widest = 256;  // head dims
  const Problem& p = inputs.baked;
  if (inputs.tier == Tier::General) return "the general ones were asked for";
  if (inputs.sm != 90) return "they are for sm_90";
  if (!is_16_bit(p.q.dtype)) return "they take f16 and bf16";
  if (p.precision == Precision::Strict) return "they do not compute strictly";
  if (p.sizes.d > widest || p.sizes.dv > widest) return "they take head dims up to 256";
  if (p.direction == Direction::Backward) return why_no_hopper_backward(inputs);
  if (!is_16_bit(p.o.dtype)) return "they take f16 and bf16";
  if (hopper_forward_shape(inputs).shared_bytes > inputs.shared_memory) {
    return "the formula stages too many values";
  }
  return "";
}

KernelShape hopper_forward_shape(const ShapeInputs& inputs) {
  KernelShape shape;
  for (const ColumnChoice& choice : choices) {
    if (inputs.baked.sizes.d > choice.widest_d || inputs.baked.sizes.dv > choice.widest_dv)
      continue;
    for (const int columns : choice.columns) {
      for (const StageCounts& stages : all_stages) {
        shape = with_columns(inputs, columns, stages);
        if (shape.shared_bytes <= inputs.shared_memory) return shape;
      }
    }
    break;
  }
  return shape;
}

int tile_heads(const Rendered& formula, const Sizes& sizes, const KernelShape& shape) {
  if (formula.row_words + formula.column_words + formula.diagonal_words + formula.cell_bytes > 0) {
    return 1;
  }
  constexpr std::int64_t warp_rows = 16;  // a warp has rows of one head
  const std::int64_t group = sizes.hkv == 0 ? 1 : sizes.h / sizes.hkv;
  int heads = 1;
  while (group % (2 * heads) == 0 && shape.rows % (2 * heads * warp_rows) == 0 &&
         sizes.sq * 2 * heads <= shape.rows) {
    heads *= 2;
  }
  return heads;
}

std::int64_t query_tiles(const Sizes& sizes, const KernelShape& shape, int tile_heads) {
  return ceil_div(sizes.sq, shape.rows / tile_heads) * (sizes.h / tile_heads) * sizes.b;
}

namespace {

std::int64_t query_tiles(const CallArguments& call, const KernelShape& shape) {
  return query_tiles(Sizes{.b = call.b, .h = call.h, .sq = call.sq}, shape, call.tile_heads);
}

}  // namespace

Grid over_query_tiles(const CallArguments& call, const KernelShape& shape) {
  const std::int64_t blocks = std::min<std::int64_t>(query_tiles(call, shape), shape.most_blocks);
  return {static_cast<unsigned>(blocks), 1, 1, static_cast<unsigned>(32 * shape.warps)};
}

bool counts_query_tiles(const CallArguments& call, const KernelShape& shape) {
  return query_tiles(call, shape) > shape.most_blocks;
}

bool can_map(const CallArguments& call) {
  const std::int64_t batches = call.q_starts != nullptr ? 1 : call.b;
  const bool backward = call.grad_o.data != nullptr;
  return can_map(call.q, batches, call.h, call.rows_q) &&
         can_map(call.k, batches, call.hkv, call.rows_k) &&
         can_map(call.v, batches, call.hkv, call.rows_k) && call.d > 0 && call.dv > 0 &&
         (backward ? can_map(call.grad_o, batches, call.h, call.rows_q)
                   : call.o.copy_bytes == 16 && call.dv % 8 == 0);
}

void pack_maps(const CallArguments& call, const KernelShape& shape, device::TensorMap* maps) {
  const std::int64_t batches = call.q_starts != nullptr ? 1 : call.b;
  write_map(call.q, {call.d, call.rows_q, call.h, batches, call.tile_queries, call.tile_heads},
            maps[device::map_q]);
  write_map(call.k, {call.d, call.rows_k, call.hkv, batches, shape.columns}, maps[device::map_k]);
  write_map(call.v, {call.dv, call.rows_k, call.hkv, batches, shape.columns}, maps[device::map_v]);
  if (call.grad_o.data == nullptr) return;
  write_map(call.grad_o, {call.dv, call.rows_q, call.h, batches, shape.rows},
            maps[device::map_grad_o]);
}

bool pack_cell_map(const Rendered& formula, const Bindings& bindings, int box_rows,
                   Arguments& arguments) {
  if (formula.cell_bytes != 2) return true;
  const ir::TensorView& view = bindings.tensors[formula.cell_slot];
  const auto q = static_cast<std::size_t>(formula.cell_q);
  const auto k = static_cast<std::size_t>(formula.cell_k);
  const CellSlices slices = slices_of(view, formula.cell_q, formula.cell_k);
  constexpr std::int64_t furthest = std::int64_t{1} << 31, multiple = 8;  // elements
  const bool fits = slices.stride > 0 && slices.stride % multiple == 0 &&
                    slices.stride < furthest && slices.count < furthest && view.stride[k] == 1 &&
                    view.stride[q] > 0 && view.stride[q] % multiple == 0 &&
                    view.stride[q] < furthest &&
                    reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0;
  if (!fits) return false;
  arguments.call.cell_slices = slices.stride;
  device::TensorArgument tensor{};
  tensor.data = const_cast<void*>(view.data);
  tensor.position = view.stride[q];
  tensor.head = slices.stride;
  write_map(tensor, {view.extent[k], view.extent[q], slices.count, 1, box_rows},
            arguments.maps[device::map_cells]);
  return true;
}

}  // namespace fovea::jit

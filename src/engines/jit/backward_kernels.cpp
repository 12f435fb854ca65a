#include "engines/jit/backward_kernels.h"

#include <algorithm>

#include "engines/jit/device/hopper/backward_layout.h"
#include "engines/jit/hopper.h"
#include "engines/jit/hopper_backward.h"
#include "engines/jit/kernels.h"

namespace fovea::jit {
namespace {

using device::CallArguments;

bool is_wide(const ShapeInputs& inputs) { return inputs.baked.q.dtype == DType::F32; }

// --- tiles ---

// Sums that a thread of backward.h holds: dK, dV, S and dP. More than 192 of them leave too few of
// 255 registers for everything else.
constexpr int most_sums = 192;
int sums_of_thread(const KernelShape& s) {
  return s.columns * (s.d + s.dv + 2 * s.rows) / (32 * s.warps);
}

// In the order of speed: many keys to a block, since dQ's sums are added to once for each tile.
struct TileChoice {
  int rows, columns, warps;
};
constexpr TileChoice choices[] = {{128, 128, 8}, {64, 128, 8}, {64, 64, 8},
                                  {32, 64, 8},   {32, 32, 4},  {16, 16, 2}};
// How many tiles of queries and of output gradients are in shared memory at once.
struct TileStages {
  int q, grad_o;
};
constexpr TileStages stages[] = {{2, 2}, {2, 1}, {1, 1}};

KernelShape with_tiles(const ShapeInputs& inputs, const TileChoice& choice) {
  KernelShape shape;
  shape.d = static_cast<int>(inputs.baked.sizes.d);
  shape.dv = static_cast<int>(inputs.baked.sizes.dv);
  shape.rows = choice.rows;
  shape.columns = choice.columns;
  shape.warps = choice.warps;
  return shape;
}

// The tiles of backward.h.
KernelShape backward_shape(const ShapeInputs& inputs) {
  for (const TileChoice& choice : choices) {
    KernelShape shape = with_tiles(inputs, choice);
    if (sums_of_thread(shape) > most_sums) continue;
    if (is_wide(inputs) && choice.columns > 64) continue;
    for (const TileStages& count : stages) {
      const device::BackwardShared shared(tile_sizes(inputs, shape), count.q, count.grad_o,
                                          inputs.captured_bytes);
      shape.shared_bytes = shared.bytes;
      if (shape.shared_bytes > inputs.shared_memory) continue;
      shape.own = {{"q_stages", count.q},
                   {"grad_o_stages", count.grad_o},
                   {"captured_bytes", inputs.captured_bytes}};
      return shape;
    }
  }
  return with_tiles(inputs, choices[std::size(choices) - 1]);  // does not fit, and judge says so
}

KernelShape delta_shape(const ShapeInputs& inputs) {
  KernelShape shape = backward_shape(inputs);
  shape.warps = 4;
  shape.shared_bytes = 0;
  shape.own = {{"row_terms", 0}};
  return shape;
}

KernelShape sink_shape(const ShapeInputs& inputs) {
  KernelShape shape = with_tiles(inputs, {16, 16, 8});
  shape.shared_bytes = 8 * shape.warps;
  return shape;
}

// Reads sums as backward.h left them, so it has the same warps.
KernelShape finish_shape(const ShapeInputs& inputs) {
  KernelShape shape = backward_shape(inputs);
  shape.shared_bytes = 0;
  return shape;
}

KernelShape backward_dq_shape(const ShapeInputs& inputs) {
  KernelShape shape = with_tiles(inputs, {128, 64, 8});
  const int widest = std::max(shape.d, shape.dv);
  if (is_wide(inputs) || widest > 128) shape.columns = 32;
  // What does not fit has one tile of keys at a time, then fewer queries, then fewer keys.
  for (int count = 2;;) {
    shape.shared_bytes = device::BackwardDqShared(tile_sizes(inputs, shape), count).bytes;
    shape.own = {{"stages", count}};
    const bool smallest = count == 1 && shape.rows == 16 && shape.columns == 16;
    if (shape.shared_bytes <= inputs.shared_memory || smallest) return shape;
    if (count == 2) {
      count = 1;
    } else if (shape.rows > 32 || (shape.columns == 16 && shape.rows > 16)) {
      shape.rows /= 2;
      shape.warps = shape.rows / 16;
    } else {
      shape.columns /= 2;
    }
  }
}

// --- which plans have a kernel ---

bool is_general(const ShapeInputs& inputs) { return !has_hopper(inputs); }
bool wants_sink(const ShapeInputs& inputs) { return inputs.baked.want_sink; }
bool adds_up_q(const ShapeInputs& inputs) {
  return is_general(inputs) && inputs.baked.want_q && !inputs.baked.deterministic;
}
bool orders_q(const ShapeInputs& inputs) {
  return is_general(inputs) && inputs.baked.want_q && inputs.baked.deterministic;
}
bool reads_distances(const ShapeInputs& inputs) {
  return has_hopper(inputs) && inputs.diagonal_words > 0;
}

// --- grids ---

Grid over_keys(const CallArguments& call, const KernelShape& shape) {
  return in_line(ceil_div(call.skv, shape.columns), std::int64_t{call.hkv} * call.b, shape);
}
Grid over_queries(const CallArguments& call, const KernelShape& shape) {
  return in_line(ceil_div(call.sq, shape.rows), std::int64_t{call.h} * call.b, shape);
}
Grid over_rows(const CallArguments& call, const KernelShape& shape) {
  return in_line(ceil_div(call.sq, device::delta_rows), std::int64_t{call.h} * call.b, shape);
}
// Either the general kernels or those for Hopper.
constexpr KernelRow rows[] = {
    {"backward_delta", "backward_delta.h", false, is_general, nullptr, delta_shape, over_rows},
    {"backward_delta", "backward_delta.h", false, has_hopper, nullptr, hopper_delta_shape,
     over_rows},
    {"backward_sink", "backward_sink.h", false, wants_sink, nullptr, sink_shape, over_heads},
    {"backward", "backward.h", true, is_general, nullptr, backward_shape, over_keys, true},
    {"backward_finish", "backward_finish.h", true, adds_up_q, nullptr, finish_shape, over_queries,
     false, false, true},
    {"backward_dq", "backward_dq.h", true, orders_q, nullptr, backward_dq_shape, over_queries},
    {"distances", "distances.h", true, reads_distances, nullptr, sink_shape, over_distances},
    {"hopper_backward", "hopper/backward.h", true, is_narrow_hopper_backward, nullptr,
     hopper_backward_shape, over_multiprocessors, true, true},
    {"hopper_backward_wide", "hopper/backward_wide.h", true, is_wide_hopper_backward, nullptr,
     hopper_backward_shape, over_multiprocessors, true, true},
    {"hopper_backward_finish", "hopper/backward_finish.h", true, has_hopper, nullptr,
     hopper_finish_shape, over_queries_and_keys, false, false, true},
    {"gaps", "gaps.h", false, is_packed, nullptr, sink_shape, over_gaps},
};

const PreparedKernel& main_kernel(const PreparedPlan& prepared) {
  return *std::ranges::find_if(prepared.kernels, [](const PreparedKernel& kernel) {
    return kernel.row->grid == over_keys || kernel.row->grid == over_multiprocessors;
  });
}

// Of one head's queries, or of all sequences' if they are packed.
std::int64_t sum_tiles(const PreparedPlan& prepared, const Sizes& sizes, int in_tile) {
  return prepared.baked.layout == Layout::Thd ? device::sum_tiles(sizes.t_q, sizes.b, in_tile)
                                              : sizes.b * device::sum_tiles(sizes.sq, 0, in_tile);
}

}  // namespace

std::int64_t grad_q_sum_floats(const PreparedPlan& prepared, const Sizes& sizes) {
  const PreparedKernel& kernel = main_kernel(prepared);
  const int in_tile = kernel.shape.rows;
  // A call that the kernels for Hopper do not take has the largest of the general ones' tiles.
  const int room = kernel.row->maps_tensors ? choices[0].rows : in_tile;
  return sizes.h * sum_tiles(prepared, sizes, room) * room * kernel.shape.d;
}

std::int64_t row_term_floats(const PreparedPlan& prepared, const Sizes& sizes) {
  const KernelShape& shape = main_kernel(prepared).shape;
  return sizes.h * sum_tiles(prepared, sizes, shape.rows) * 2 * shape.rows;
}

std::int64_t query_turn_words(const PreparedPlan& prepared, const Sizes& sizes) {
  const KernelShape& shape = main_kernel(prepared).shape;
  return sizes.h * sum_tiles(prepared, sizes, shape.rows) * device::backward_turn_sets *
         device::backward_turn_words(static_cast<int>(sizes.skv), shape.columns);
}

std::span<const KernelRow> backward_kernel_rows() { return rows; }

}  // namespace fovea::jit

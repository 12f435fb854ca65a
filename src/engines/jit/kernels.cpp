#include "engines/jit/kernels.h"

#include <algorithm>

#include "attention/refuse.h"
#include "engines/jit/bake.h"
#include "engines/jit/device/shared_layout.h"

namespace fovea::jit {
namespace {

using device::Call;

int ceil_div(std::int64_t a, std::int64_t b) { return static_cast<int>((a + b - 1) / b); }

// --- shapes ---

Shape head_dims(const Problem& baked) {
  Shape shape;
  shape.d = static_cast<int>(baked.sizes.d);
  shape.dv_chunks = ceil_div(baked.sizes.dv, widest_chunk);
  shape.dv = static_cast<int>(baked.sizes.dv) / shape.dv_chunks;
  return shape;
}

device::TileSizes tile_sizes(const ShapeFacts& facts, const Shape& shape) {
  const int element_bytes = facts.baked.q.dtype == DType::F32 ? 4 : 2;
  return {element_bytes, shape.d,         shape.dv,          shape.rows,
          shape.columns, facts.row_words, facts.column_words};
}

// Halves tiles until they fit, columns first: they only cost a turn more of the loop.
template <class Shared>
Shape fitted(const ShapeFacts& facts, Shape shape) {
  constexpr int least = 16;
  for (;;) {
    shape.shared_bytes = Shared(tile_sizes(facts, shape)).bytes;
    if (shape.shared_bytes <= facts.shared_memory) return shape;
    if (shape.columns > 2 * least) {
      shape.columns /= 2;
    } else if (shape.rows > least && shape.warps > 1) {
      shape.rows /= 2;
      shape.warps /= 2;
    } else {
      return shape;  // refused by judge
    }
  }
}

Shape forward_shape(const ShapeFacts& facts) {
  Shape shape = head_dims(facts.baked);
  const int widest = std::max(shape.d, shape.dv);
  shape.rows = widest <= 128 ? 128 : 64;
  shape.columns = widest <= 128 ? 64 : 32;
  shape.warps = shape.rows / 16;
  shape.blocks = widest <= 64 ? 2 : 1;
  if (facts.baked.q.dtype == DType::F32) {
    shape.rows = 64;
    shape.columns = 32;
    shape.warps = 4;
    shape.blocks = 1;
  }
  return fitted<device::ForwardShared>(facts, shape);
}

Shape small_shape(const ShapeFacts& facts) { return head_dims(facts.baked); }

// --- which plans have a kernel, and which calls ---

bool always(const Problem&) { return true; }
bool wants_max_logit(const Problem& baked) { return baked.max_logit; }
bool has_gaps(const Problem& baked) {
  return baked.layout == Layout::Thd || baked.has_q_lengths || baked.has_k_lengths;
}
[[maybe_unused]] bool is_split(const Call& call) { return call.splits > 0; }
[[maybe_unused]] bool is_not_split(const Call& call) { return call.splits == 0; }

// --- grids ---

unsigned size(std::int64_t x) { return static_cast<unsigned>(x); }

Grid in_line(std::int64_t a, std::int64_t b, const Shape& shape) {
  constexpr std::int64_t most = (std::int64_t{1} << 31) - 1;
  if (b > 0 && a > most / b) refuse("sizes", a, "engine jit launches at most 2^31 - 1 blocks");
  return {size(a * b), 1, 1, size(32 * shape.warps)};
}

// All in one dimension: the others have at most 65535.
Grid over_queries(const Call& call, const Shape& shape) {
  return in_line(std::int64_t{call.h} * call.b * shape.dv_chunks, ceil_div(call.sq, shape.rows),
                 shape);
}

Grid over_heads(const Call& call, const Shape& shape) { return in_line(call.h, 1, shape); }

// Rows of queries and of keys, 64 to a block.
Grid over_rows(const Call& call, const Shape& shape) {
  const std::int64_t batches = call.q_starts != nullptr ? 1 : call.b;
  return in_line(batches, ceil_div(std::max(call.rows_q, call.rows_k), 64), shape);
}

// --- the tables ---

constexpr KernelRow forward_rows[] = {
    {"forward", true, always, is_not_split, forward_shape, over_queries},
    {"gaps", false, has_gaps, nullptr, small_shape, over_rows},
    {"max_logit", false, wants_max_logit, nullptr, small_shape, over_heads},
};

constexpr KernelRow backward_rows[] = {
    {"gaps", false, has_gaps, nullptr, small_shape, over_rows},
};

}  // namespace

std::span<const KernelRow> kernel_rows(Direction direction) {
  if (direction == Direction::Forward) return forward_rows;
  return backward_rows;
}

void choose_splits(device::Call& call, bool, int) { call.splits = call.split_keys = 0; }

int most_splits(const Sizes&, Layout, int) { return 0; }

}  // namespace fovea::jit

#include "engines/jit/hopper_backward.h"

#include <algorithm>
#include <span>

#include "engines/jit/captured.h"
#include "engines/jit/device/hopper/backward_layout.h"
#include "engines/jit/kernels.h"

namespace fovea::jit {
namespace {

using device::Call;

bool is_16_bit(DType dtype) { return dtype == DType::F16 || dtype == DType::BF16; }

// Whole chunks of 64 features; what a head lacks is loaded as zeros.
constexpr int chunk = 64, widest = 256;
int in_chunks(std::int64_t features) { return static_cast<int>(ceil_div(features, chunk)) * chunk; }

// Heads wider than 128 have a kernel of their own, with narrower tiles.
int tile_keys(const ShapeFacts& facts) {
  const Sizes& sizes = facts.baked.sizes;
  return device::backward_tile_keys(static_cast<int>(sizes.d), static_cast<int>(sizes.dv));
}
bool is_wide(const ShapeFacts& facts) { return tile_keys(facts) == device::wide_backward_keys; }

// In the order of speed: tiles of dS, and pieces of dQ that are on their way while the next ones
// are computed (0: sums are added to global memory from registers).
struct Places {
  int ds, sums;
};
constexpr Places narrow_places[] = {{2, 4}, {2, 3}, {2, 2}, {2, 1}};
constexpr Places wide_places[] = {{2, 2}, {2, 1}, {1, 1}, {1, 0}};
std::span<const Places> all_places(const ShapeFacts& facts) {
  return is_wide(facts) ? std::span<const Places>(wide_places) : narrow_places;
}

constexpr int q_stages = 2;

// Tiles of P that one warpgroup leaves for another: what multiplies dP, and P itself for captured
// gradients.
int p_tiles(const ShapeFacts& facts) {
  if (!is_wide(facts)) return 0;
  return facts.captured != nullptr && facts.captured->hopper_reads_p() ? 2 : 1;
}

int captured_bytes(const ShapeFacts& facts) {
  return facts.captured == nullptr ? 0 : facts.captured->hopper_shared_bytes();
}

device::HopperBackwardSizes sizes_of(const ShapeFacts& facts, const Places& places) {
  return {in_chunks(facts.baked.sizes.d),
          in_chunks(facts.baked.sizes.dv),
          tile_keys(facts),
          q_stages,
          places.ds,
          places.sums,
          p_tiles(facts),
          facts.row_words,
          facts.column_words,
          facts.diagonal_words,
          facts.cell_bytes,
          captured_bytes(facts)};
}

const Places* best_places(const ShapeFacts& facts) {
  for (const Places& places : all_places(facts)) {
    const device::HopperBackwardShared shared(sizes_of(facts, places));
    if (shared.bytes <= facts.shared_memory) return &places;
  }
  return nullptr;
}

Shape with_tiles(const ShapeFacts& facts, int warps) {
  Shape shape;
  shape.d = in_chunks(facts.baked.sizes.d);
  shape.dv = in_chunks(facts.baked.sizes.dv);
  shape.rows = device::backward_queries;
  shape.columns = tile_keys(facts);
  shape.warps = warps;
  return shape;
}

}  // namespace

bool is_narrow_hopper_backward(const ShapeFacts& facts) {
  return is_hopper_backward(facts) && !is_wide(facts);
}
bool is_wide_hopper_backward(const ShapeFacts& facts) {
  return is_hopper_backward(facts) && is_wide(facts);
}

std::string why_no_hopper_backward(const ShapeFacts& facts) {
  const Problem& p = facts.baked;
  if (facts.tier == Tier::General) return "the general ones were asked for";
  if (facts.sm != 90) return "they are for sm_90";
  if (!is_16_bit(p.q.dtype) || p.grad_o.dtype != p.q.dtype)
    return "they take f16 and bf16, and output gradients of the same type";
  if (p.sizes.d > widest || p.sizes.dv > widest) return "they take head dims up to 256";
  if (p.precision == Precision::Strict) return "they do not compute strictly";
  if (!p.want_q) return "they compute dQ always";
  if (p.program.bprop()) return "the formula has a derivative by hand";
  if (facts.cell_bytes > 2) return "they take captured tensors by query and key of 16 bits";
  if (facts.captured != nullptr && facts.captured->any_terms()) {
    const std::string why = facts.captured->why_not_hopper();
    if (!why.empty()) return why;
    if (p.dropout > 0) return "they compute no gradients of captured tensors under dropout";
  }
  if (best_places(facts) == nullptr) return "the formula stages too many values";
  return "";
}

Shape hopper_delta_shape(const ShapeFacts& facts) {
  Shape shape = with_tiles(facts, 4);
  shape.blocks = 8;
  shape.own = {{"row_terms", 1}};
  return shape;
}

Shape hopper_backward_shape(const ShapeFacts& facts) {
  Shape shape = with_tiles(facts, 16);
  const Places& places = *best_places(facts);
  shape.shared_bytes = device::HopperBackwardShared(sizes_of(facts, places)).bytes;
  shape.own = {{"q_stages", q_stages},
               {"ds_stages", places.ds},
               {"sum_slots", places.sums},
               {"p_tiles", p_tiles(facts)},
               {"captured_bytes", captured_bytes(facts)}};
  shape.most_blocks = facts.multiprocessors;
  return shape;
}

Shape hopper_finish_shape(const ShapeFacts& facts) { return with_tiles(facts, 4); }

Grid over_multiprocessors(const Call& call, const Shape& shape) {
  const std::int64_t tiles = ceil_div(call.skv, shape.columns) * call.hkv * call.b;
  return in_line(std::min<std::int64_t>(tiles, shape.most_blocks), 1, shape);
}

Grid over_queries_and_keys(const Call& call, const Shape& shape) {
  const std::int64_t queries = ceil_div(call.sq, shape.rows) * call.h * call.b;
  return in_line(queries + ceil_div(call.skv, shape.columns) * call.hkv * call.b, 1, shape);
}

std::int64_t key_nan_words(const Sizes& sizes, const Shape& shape) {
  return ceil_div(sizes.skv, shape.columns) * sizes.hkv * sizes.b * 8;
}

}  // namespace fovea::jit

#include "engines/jit/hopper_backward.h"

#include <algorithm>

#include "engines/jit/captured.h"
#include "engines/jit/device/hopper/backward_layout.h"
#include "engines/jit/grid.h"

namespace fovea::jit {
namespace {

using device::Call;

bool is_16_bit(DType dtype) { return dtype == DType::F16 || dtype == DType::BF16; }

// Whole chunks of 64 features; what a head lacks is loaded as zeros.
constexpr int chunk = 64, widest = 128;
int in_chunks(std::int64_t features) { return static_cast<int>(ceil_div(features, chunk)) * chunk; }

// In the order of speed: dQ's pieces that are on their way while the next ones are computed.
constexpr int sum_slots[] = {4, 3, 2, 1};

constexpr int q_stages = 2;

int captured_bytes(const ShapeFacts& facts) {
  return facts.captured == nullptr ? 0 : facts.captured->hopper_shared_bytes();
}

device::HopperBackwardSizes sizes_of(const ShapeFacts& facts, int slots) {
  return {in_chunks(facts.baked.sizes.d),
          in_chunks(facts.baked.sizes.dv),
          q_stages,
          slots,
          facts.row_words,
          facts.column_words,
          facts.diagonal_words,
          facts.cell_bytes,
          captured_bytes(facts)};
}

int best_slots(const ShapeFacts& facts) {
  for (const int slots : sum_slots) {
    const device::HopperBackwardShared shared(sizes_of(facts, slots));
    if (shared.bytes <= facts.shared_memory) return slots;
  }
  return 0;
}

Shape with_tiles(const ShapeFacts& facts, int warps) {
  Shape shape;
  shape.d = in_chunks(facts.baked.sizes.d);
  shape.dv = in_chunks(facts.baked.sizes.dv);
  shape.rows = device::backward_queries;
  shape.columns = device::backward_keys;
  shape.warps = warps;
  return shape;
}

std::int64_t key_tiles(std::int64_t keys) { return ceil_div(keys, device::backward_keys); }

}  // namespace

std::string why_no_hopper_backward(const ShapeFacts& facts) {
  const Problem& p = facts.baked;
  if (facts.tier == Tier::General) return "the general ones were asked for";
  if (facts.sm != 90) return "they are for sm_90";
  if (!is_16_bit(p.q.dtype) || p.grad_o.dtype != p.q.dtype)
    return "they take f16 and bf16, and output gradients of the same type";
  if (p.sizes.d > widest || p.sizes.dv > widest) return "they take head dims up to 128";
  if (p.precision == Precision::Strict) return "they do not compute strictly";
  if (!p.want_q) return "they compute dQ always";
  if (p.program.bprop()) return "the formula has a derivative by hand";
  if (facts.cell_bytes > 2) return "they take captured tensors by query and key of 16 bits";
  if (facts.captured != nullptr && facts.captured->any_terms()) {
    const std::string why = facts.captured->why_not_hopper();
    if (!why.empty()) return why;
    if (p.dropout > 0) return "they compute no gradients of captured tensors under dropout";
  }
  if (best_slots(facts) == 0) return "the formula stages too many values";
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
  const int slots = best_slots(facts);
  shape.shared_bytes = device::HopperBackwardShared(sizes_of(facts, slots)).bytes;
  shape.own = {
      {"q_stages", q_stages}, {"sum_slots", slots}, {"captured_bytes", captured_bytes(facts)}};
  shape.most_blocks = facts.multiprocessors;
  return shape;
}

Shape hopper_finish_shape(const ShapeFacts& facts) { return with_tiles(facts, 4); }

Grid over_multiprocessors(const Call& call, const Shape& shape) {
  const std::int64_t tiles = key_tiles(call.skv) * call.hkv * call.b;
  return in_line(std::min<std::int64_t>(tiles, shape.most_blocks), 1, shape);
}

Grid over_queries_and_keys(const Call& call, const Shape& shape) {
  const std::int64_t queries = ceil_div(call.sq, shape.rows) * call.h * call.b;
  return in_line(queries + key_tiles(call.skv) * call.hkv * call.b, 1, shape);
}

std::int64_t key_nan_words(const Sizes& sizes) {
  return key_tiles(sizes.skv) * sizes.hkv * sizes.b * 8;
}

}  // namespace fovea::jit

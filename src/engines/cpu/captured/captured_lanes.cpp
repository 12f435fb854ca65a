#include "engines/cpu/captured/captured_lanes.h"

#include <algorithm>

#include "attention/bindings.h"
#include "attention/extents.h"
#include "base/error.h"

namespace fovea::cpu {
namespace {

constexpr std::int64_t private_budget = std::int64_t{64} << 20;  // bytes, of all lanes together
constexpr std::int64_t usual_lanes = 16;
// Private copies of so few elements cost nearly nothing, so there are lanes for the largest
// machines.
constexpr std::int64_t few_elements = 8192;
constexpr std::int64_t most_lanes = 64;
// Copies must be cleared, added up and written: they pay off if there are at least so many scores
// for each of their elements.
constexpr std::int64_t scores_per_element = 4;
// Up to so many terms an element may be summed in f32.
constexpr std::int64_t few_terms = 64;

LaneKey operator&(const LaneKey& a, const LaneKey& b) {
  return {a.b && b.b, a.g && b.g, a.chunk && b.chunk};
}

bool owned(SumPlace kept) { return kept == SumPlace::Shared || kept == SumPlace::Direct; }

// Finds the index that is `op`, which must be the same one in all loads.
void match(int& index, bool first, const ir::Node& load, ir::Op op) {
  const auto is_op = [&](int i) {
    return i >= 0 && load.arg(static_cast<std::size_t>(i))->op() == op;
  };
  if (!first) {
    if (!is_op(index)) index = CapturedTensor::none;
    return;
  }
  for (int i = 0; i < static_cast<int>(load.args().size()); ++i) {
    if (is_op(i)) index = i;
  }
}

bool has_index(const ir::Node& load, ir::Op op) {
  return std::ranges::any_of(load.args(), [&](const ir::Expr& at) { return at->op() == op; });
}

std::int64_t score_count(const Sizes& sizes) {
  const double rows = sizes.t_q > 0 ? static_cast<double>(sizes.t_q)
                                    : static_cast<double>(sizes.b) * static_cast<double>(sizes.sq);
  const double scores = rows * static_cast<double>(sizes.h) * static_cast<double>(sizes.skv);
  return static_cast<std::int64_t>(std::min(scores, 1e18));
}

// Lanes that copies of so many elements allow.
std::int64_t lanes_for(std::int64_t elements, const Sizes& sizes) {
  if (elements <= few_elements) return most_lanes;
  if (elements > private_budget / 8) return 0;
  const std::int64_t worth = score_count(sizes) / (scores_per_element * elements);
  return std::min({usual_lanes, private_budget / (8 * elements), worth});
}

bool has_few_terms(const CapturedTensor& tensor, const Sizes& sizes) {
  if (!tensor.has_q_and_k) return false;
  const std::int64_t b = tensor.b_index == CapturedTensor::none ? sizes.b : 1;
  const std::int64_t h = tensor.h_index == CapturedTensor::none ? sizes.h : 1;
  return b <= few_terms && h <= few_terms &&
         b * h * static_cast<std::int64_t>(tensor.loads) <= few_terms;
}

// Whether positions [first, last) lie inside the tensor, so that none of them is clamped.
bool within(std::int64_t first, std::int64_t last, const ir::TensorView& view, int index) {
  return first >= 0 && last <= view.extent[static_cast<std::size_t>(index)];
}

struct KeyPositions {
  std::int64_t first = 0, last = 0;
  bool alike = true;  // whether all sequences have the same positions
};

KeyPositions key_positions(const Problem& baked, const Bindings& bindings) {
  KeyPositions out;
  const Geometry geometry(baked, bindings);
  const bool varies = baked.layout == Layout::Thd || baked.has_k_lengths || baked.has_k_offsets;
  const std::int64_t count = std::min(bindings.sizes.b, varies ? bindings.sizes.b : 1);
  for (std::int64_t b = 0; b < count; ++b) {
    const Sequence sequence = geometry.sequence(b);
    const std::int64_t first = sequence.k_offset, last = first + sequence.k_length;
    if (b == 0) out = {first, last, true};
    out.alike = out.alike && first == out.first && last == out.last;
    out.first = std::min(out.first, first);
    out.last = std::max(out.last, last);
  }
  return out;
}

}  // namespace

std::int64_t LaneKey::count(const ChunkCounts& counts) const {
  return (b ? counts.sequences : 1) * (g ? counts.groups : 1) * (chunk ? counts.chunks : 1);
}

void CapturedTensor::add_load(const ir::Node& load) {
  const bool first = loads++ == 0;
  match(b_index, first, load, ir::Op::IndexB);
  match(h_index, first, load, ir::Op::IndexH);
  match(k_index, first, load, ir::Op::IndexK);
  has_q_and_k = has_q_and_k && has_index(load, ir::Op::IndexQ) && has_index(load, ir::Op::IndexK);
}

LanePlan plan_lanes(const Problem& baked, std::span<const CapturedTensor> tensors,
                    std::size_t scalars, const Sizes& sizes, const ChunkCounts& counts) {
  LanePlan plan;
  plan.private_elements = static_cast<std::int64_t>(scalars);
  LaneKey key;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].loads == 0) continue;
    const LaneKey separates = tensors[i].separates();
    const std::int64_t elements = declared_elements(baked, sizes, tensors[i].slot);
    std::int64_t with_this = 0;
    const bool huge = __builtin_add_overflow(plan.private_elements, elements, &with_this);
    const std::int64_t lanes = huge ? 0 : lanes_for(with_this, sizes);
    if (lanes >= usual_lanes || lanes > separates.count(counts)) {
      plan.kept[i] = SumPlace::Private;
      plan.private_elements = with_this;
    } else {
      plan.kept[i] = has_few_terms(tensors[i], sizes) ? SumPlace::Direct : SumPlace::Shared;
      key = key & separates;
    }
  }
  plan.lanes = {counts, key, key.count(counts)};
  if (counts.sequences * counts.groups * counts.chunks == 0) plan.lanes.count = 0;
  if (plan.private_elements > 0) {
    plan.lanes.count = std::min(plan.lanes.count, lanes_for(plan.private_elements, sizes));
  }
  return plan;
}

GradientLanes lanes_of_call(const LanePlan& plan, const Problem& baked, const Bindings& bindings,
                            std::span<const CapturedTensor> tensors) {
  GradientLanes lanes = plan.lanes;
  if (lanes.count == 0) return lanes;
  const KeyPositions k = key_positions(baked, bindings);
  const std::int64_t b = value_of(bindings.b_offset), h = value_of(bindings.h_offset);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!owned(plan.kept[i])) continue;
    const CapturedTensor& tensor = tensors[i];
    const ir::TensorView& view = bindings.tensors[tensor.slot];
    LaneKey& key = lanes.key;
    key.b = key.b && within(b, b + bindings.sizes.b, view, tensor.b_index);
    key.g = key.g && within(h, h + bindings.sizes.h, view, tensor.h_index);
    key.chunk = key.chunk && within(k.first, k.last, view, tensor.k_index);
  }
  const bool any_owned = std::ranges::any_of(plan.kept, owned);
  if (any_owned && !k.alike && !lanes.key.b) lanes.key.chunk = false;
  lanes.count = std::min(lanes.count, lanes.key.count(lanes.counts));
  return lanes;
}

}  // namespace fovea::cpu

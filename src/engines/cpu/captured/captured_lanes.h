// Which lane sums the gradients of captured tensors. Either a tensor is small enough that every
// lane has its own copy, in double, and the copies are added up lane after lane; or each of its
// elements belongs to one lane, because one of its indices is b, h or k, and key chunks that differ
// there are in different lanes. All of it follows from shapes.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "attention/bindings.h"
#include "attention/problem.h"
#include "ir/expr.h"
#include "ir/program.h"

namespace fovea::cpu {

// How many chunks of keys there are: sequences, key/value heads, chunks of a sequence (at most).
// Chunks of sequences that are equally long, at equal offsets, are the same keys.
struct ChunkCounts {
  std::int64_t sequences = 0, groups = 0, chunks = 0;
};

// Which of (b, g, chunk) tell lanes apart.
struct LaneKey {
  bool b = true, g = true, chunk = true;
  std::int64_t count(const ChunkCounts& counts) const;
};

struct GradientLanes {
  ChunkCounts counts;
  LaneKey key;
  std::int64_t count = 0;

  std::int64_t lane_of(std::int64_t b, std::int64_t g, std::int64_t chunk) const {
    std::int64_t at = key.b ? b : 0;
    if (key.g) at = at * counts.groups + g;
    if (key.chunk) at = at * counts.chunks + chunk;
    return at % count;
  }
};

enum class SumPlace : std::uint8_t {
  Nowhere,  // no load has a gradient: zeros are written
  Private,  // a copy per lane, in double
  Shared,   // one copy, in double
  // Few terms per element: in the output itself, or, if the tensor has 16 bits and its gradient
  // too, in an f32 copy. (A gradient of 16 bits of a wider tensor is rounded for every term.)
  Direct,
};

// A wanted tensor, as the loads of it index it.
struct CapturedTensor {
  static constexpr int none = -1;
  std::uint32_t slot = 0;
  std::size_t loads = 0;
  // The index that is the leaf b, h or k in every load.
  int b_index = none, h_index = none, k_index = none;
  // Every load has an index that is q and one that is k: one term per load, (b, h) and element.
  bool has_q_and_k = true;

  void add_load(const ir::Node& load);
  LaneKey separates() const { return {b_index != none, h_index != none, k_index != none}; }
};

// The decision, by declared extents. It allocates nothing, and is made again in every call.
struct LanePlan {
  std::array<SumPlace, ir::limits::captured> kept{};  // of each tensor
  std::int64_t private_elements = 0;                  // of a lane: tensors, then scalars
  GradientLanes lanes;                                // the most that a call can have
};
LanePlan plan_lanes(const Problem& baked, std::span<const CapturedTensor> tensors,
                    std::size_t scalars, const Sizes& sizes, const ChunkCounts& counts);

// The lanes of one call: those of the plan, but fewer if offsets or lengths let chunks share
// elements (an index that is clamped no longer belongs to one chunk).
GradientLanes lanes_of_call(const LanePlan& plan, const Problem& baked, const Bindings& bindings,
                            std::span<const CapturedTensor> tensors);

}  // namespace fovea::cpu

#include "engines/jit/bake.h"

#include <algorithm>

#include "attention/engine.h"
#include "engines/jit/device/shared_layout.h"

namespace fovea::jit {

std::int64_t class_of_d(std::int64_t d) {
  for (const std::int64_t size : {32, 64, 96, 128, 192, 256}) {
    if (d <= size) return size;
  }
  return d <= widest_d ? (d + 63) / 64 * 64 : d;
}

// Beyond the widest chunk a class is a multiple of it.
std::int64_t class_of_dv(std::int64_t dv) {
  if (dv <= widest_chunk) return class_of_d(dv);
  return dv <= widest_dv ? (dv + widest_chunk - 1) / widest_chunk * widest_chunk : dv;
}

namespace {

bool has_few_queries(const Sizes& sizes) {
  return sizes.hkv > 0 && sizes.sq * (sizes.h / sizes.hkv) <= device::decode_group_rows;
}

// An extent H counts all heads of the model if a call has a part of them, and the workspace has
// tables as large as captured tensors: so their number is baked.
bool has_extent_h(const ir::Program& program) {
  return std::ranges::any_of(program.tensors(), [](const ir::TensorDecl& tensor) {
    return std::ranges::count(tensor.extents, ir::Extent::Kind::H, &ir::Extent::kind) != 0;
  });
}

}  // namespace

// Kernels that split keys take half of a forward's compile time, so only plans that may need them
// have them.
bool splits_keys(const Problem& baked) {
  const bool varies = baked.layout == Layout::Thd || baked.has_q_lengths || baked.has_k_lengths;
  return baked.direction == Direction::Forward &&
         (baked.sizes.sq == few_queries || (baked.deterministic && varies));
}

Baking bake(const Problem& problem) {
  Baking baking = bake_for_host(problem, ir::Shifts::Lift);
  Problem& baked = baking.baked.problem;
  baked.layout = problem.layout == Layout::Thd ? Layout::Thd : Layout::Bhsd;
  baked.sizes.sq = baked.direction == Direction::Forward && has_few_queries(problem.sizes)
                       ? few_queries
                       : many_queries;
  baked.sizes.d = class_of_d(problem.sizes.d);
  // Only a forward computes dv in chunks.
  baked.sizes.dv = problem.direction == Direction::Forward ? class_of_dv(problem.sizes.dv)
                                                           : class_of_d(problem.sizes.dv);
  baked.dropout =
      problem.dropout > 0 ? 0.5f : 0.0f;  // whether there is dropout; how much comes with each call
  baked.rng = Rng::Portable;              // its own generator is the portable one
  baked.deterministic = problem.deterministic;
  baked.precision = problem.precision;
  baked.has_q_offsets = baked.has_k_offsets = false;
  baked.h_global = has_extent_h(problem.program) ? problem.h_global : 0;
  return baking;
}

}  // namespace fovea::jit

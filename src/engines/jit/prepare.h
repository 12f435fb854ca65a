// A Problem prepared, once per plan: its formula as device code, its kernels with their tiles and
// texts. Builds nothing.
#pragma once

#include <vector>

#include "attention/device.h"
#include "engines/jit/captured.h"
#include "engines/jit/kernels.h"
#include "engines/jit/render.h"
#include "engines/jit/source.h"

namespace fovea::jit {

struct PreparedKernel {
  const KernelRow* row = nullptr;
  KernelShape shape;
};

// A translation unit and what is needed to store and load it.
struct PreparedUnit {
  KernelSource source;
  bool shared = false;  // by plans of other formulas
  int shared_bytes = 0;
};

struct PreparedPlan {
  Problem baked;
  Rendered formula;
  CapturedSums captured;
  std::vector<PreparedKernel> kernels;
  // Of the kernels, in their order; then one for each type of summary.
  std::vector<PreparedUnit> units;
  std::vector<std::size_t> summary_units;  // by summary
  // What clears counters and the sums of captured gradients, and what writes those, if the plan has
  // any: in calls in which no other kernel does so.
  std::size_t clear_unit = 0, captured_write_unit = 0;
  CapturedWords captured_words;  // of a kernel that writes them beside what it does
  int multiprocessors = 1;
  bool overlaps = false;  // kernels are started while those before them end: see cuda::launch

  // The kernel that takes tensor maps; null: there is none.
  const PreparedKernel* mapped_kernel() const;
};

// The formula as a plan's kernels take it, and what their tiles are chosen by. Both are kept by the
// caller as long as the inputs are.
Rendered render_for(const Problem& baked, const CapturedSums& captured, const Device& device,
                    Tier tier);
ShapeInputs shape_inputs(const Problem& baked, const Device& device, const Rendered& formula,
                         const CapturedSums& captured, Tier tier);

PreparedPlan prepare(const Problem& baked, const Device& device, Tier tier = Tier::Best);

}  // namespace fovea::jit

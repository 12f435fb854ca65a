// A Problem made ready, once per plan: its formula as device code, its kernels with their tiles.
// Builds nothing.
#pragma once

#include <vector>

#include "attention/device.h"
#include "engines/jit/kernels.h"
#include "engines/jit/render.h"

namespace fovea::jit {

struct PreparedKernel {
  const KernelRow* row = nullptr;
  Shape shape;
};

struct Prepared {
  Problem baked;
  Rendered formula;
  std::vector<PreparedKernel> kernels;
  int multiprocessors = 1;
};

Prepared prepare(const Problem& baked, const Device& device);

}  // namespace fovea::jit

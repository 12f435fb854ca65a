// A plan: the kernels of a Problem, loaded, and how a call launches them.
#pragma once

#include <memory>
#include <vector>

#include "attention/engine.h"
#include "engines/jit/prepare.h"

namespace fovea::jit {

// For a GPU that is here; `kernels` are CUfunctions in the order of prepared.units.
std::unique_ptr<Plan> make_plan(PreparedPlan prepared, const Device& device,
                                std::vector<cuda::Handle> kernels);

}  // namespace fovea::jit

// The compiled kernels of a plan: from a bundle, the disk, or compiled now. Kernels that use the
// formula are stored together, since they are built and used together; all formulas share the
// others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engines/jit/prepare.h"

namespace fovea::jit {

using KernelImage = std::vector<std::uint8_t>;

// Compiles and stores them, on a machine with the device or without. Throws Unsupported if
// nothing is stored and there is no compiler.
void compile_images(const PreparedPlan& prepared, const Device& device);

// Loaded into the current context, in the order of prepared.units: CUfunctions.
std::vector<cuda::Handle> load_kernels(const PreparedPlan& prepared, const Device& device);

// Why stored kernels of this environment cannot be used here; "" if they can.
std::string refuse_environment(const std::string& environment);

}  // namespace fovea::jit

// The compiled kernels of a plan: from a bundle, the disk, or compiled now. What asks the formula
// is stored together, since it is made and used together; the rest is shared by all formulas.
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

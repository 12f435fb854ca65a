// The graphs of a Problem, from memory, a bundle, the disk, or built: one per slice of the batch.
// `first` is the first slice as judge() lowered it.
#pragma once

#include <string>
#include <vector>

#include "engines/cudnn/plan.h"

namespace fovea::cudnn {

// cuDNN's own support check of each, which compiles nothing: for tests of many. Throws Unsupported.
void check_graphs(const Problem& baked, const Lowered& first, const Device& device);

// Compiles and stores them, on a machine with the device or without. Throws Unsupported.
void compile_graphs(const Problem& baked, const Lowered& first, const Device& device);

// Ready to run on a GPU that is here. Graphs are shared by plans that have them in common.
std::vector<Slice> load_graphs(const Problem& baked, const Lowered& first, const Device& device);

// Why stored plans of this environment cannot be used here; "" if they can.
std::string refuse_environment(const std::string& environment);

}  // namespace fovea::cudnn

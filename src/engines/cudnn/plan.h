// A plan: graphs for slices of the batch, from memory, a bundle, the disk, or built; and how the
// tensors of a call are bound to them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "attention/engine.h"
#include "engines/cudnn/graph.h"
#include "engines/cudnn/lower.h"

namespace fovea::cudnn {

struct Slice {
  std::int64_t first = 0, batch = 1;
  std::shared_ptr<const Graph> graph;
  Lowered lowered;
};

// For a GPU that is here. The tables of its formulas are copied there, once for the process.
std::unique_ptr<Plan> make_plan(const Problem& baked, const Device& device,
                                std::vector<Slice> slices);

// Below, `first` is the first slice as judge() lowered it.

// cuDNN's own support check of each graph, which compiles nothing: for tests of many. Throws
// Unsupported.
void check_graphs(const Problem& baked, const Lowered& first, const Device& device);

// Compiles and stores the graphs, on a machine with the device or without. Throws Unsupported.
void compile_graphs(const Problem& baked, const Lowered& first, const Device& device);

// Graphs that are ready to run on a GPU that is here. Plans share those that they have in common.
std::vector<Slice> load_graphs(const Problem& baked, const Lowered& first, const Device& device);

// Why stored plans of this environment cannot be used here; "" if they can.
std::string refuse_environment(const std::string& environment);

}  // namespace fovea::cudnn

// A plan: graphs for slices of the batch, and how the tensors of a call are bound to them.
#pragma once

#include <memory>
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

}  // namespace fovea::cudnn

// What an engine's own part of a call on a GPU costs the host. The driver and the cuDNN that are
// loaded for it do nothing, and no kernel is compiled.
#pragma once

#include <benchmark/benchmark.h>

#include <memory>
#include <string>

#include "attention/engine.h"

namespace fovea::bench {

struct GpuEngine {
  Baking (*bake)(const Problem& problem);
  std::unique_ptr<Plan> (*make_plan)(const Problem& baked, const Device& device);
};

// A small call of the case that the state names, with these further words of its line.
void measure_idle_calls(benchmark::State& state, const std::string& words,
                        const GpuEngine& engine);

}  // namespace fovea::bench

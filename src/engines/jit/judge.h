// What engine jit can run, and how fast, by rules that cost microseconds: nearly everything on
// sm_80 and newer.
#pragma once

#include "attention/engine.h"

namespace fovea::jit {

Verdict judge(const Problem& baked, const Device& device);

// By rates that were measured, for the choice among engines.
double expected_seconds(const Problem& problem, const Device& device);

}  // namespace fovea::jit

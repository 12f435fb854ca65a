// What a plan of engine jit will take: by rates that were measured, for the choice among engines.
#pragma once

#include "attention/engine.h"

namespace fovea::jit {

double expected_seconds(const Problem& problem, const Device& device);

}  // namespace fovea::jit

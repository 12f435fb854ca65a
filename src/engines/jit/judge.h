// What engine jit can run, by rules that cost microseconds: nearly everything on sm_80 and newer.
#pragma once

#include "attention/engine.h"

namespace fovea::jit {

Verdict judge(const Problem& baked, const Device& device);

}  // namespace fovea::jit

// Engine jit: CUDA kernels of our own, compiled for each formula when it is first used. It runs
// whatever engine cpu runs on a host.
#pragma once

#include "attention/engine.h"

namespace fovea {

const Engine& jit_engine();

}  // namespace fovea

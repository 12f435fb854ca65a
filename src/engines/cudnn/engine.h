// Engine cudnn: NVIDIA's fused attention, its scores modified by graphs that Fovea lowers formulas
// to.
#pragma once

#include "attention/engine.h"

namespace fovea {

const Engine& cudnn_engine();

}  // namespace fovea

// Engine cudnn: NVIDIA's fused attention, with formulas lowered to graphs that modify the scores.
#pragma once

#include "attention/engine.h"

namespace fovea {

const Engine& cudnn_engine();

}  // namespace fovea

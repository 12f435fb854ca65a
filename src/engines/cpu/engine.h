// The CPU engine: tiled, vectorised, threaded, forward and backward with any modifier. The default
// on hosts. The one thing this folder exports.
#pragma once

#include "attention/engine.h"

namespace fovea {

const Engine& cpu_engine();

}  // namespace fovea

// The reference engine: textbook loops in double over the definition of attention, every feature
// and every gradient. Tests compare the other engines with it; it runs only if it is named.
#pragma once

#include "attention/engine.h"

namespace fovea {

const Engine& reference_engine();

}  // namespace fovea

// The reference engine: textbook loops in double over the definition of attention, every feature
// and every gradient. The oracle of every test; it runs only when it is named.
#pragma once

#include "attention/engine.h"

namespace fovea {

const Engine& reference_engine();

}  // namespace fovea

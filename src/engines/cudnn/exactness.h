// Whether what a program decides (masks, selects, whole numbers, floor) comes out the same in
// cuDNN's arithmetic as in everyone else's.
#pragma once

#include <string>

#include "ir/program.h"

namespace fovea::cudnn {

// What makes a decision inexact, in words ("logarithm"); "" where nothing does.
std::string inexact_decision(const ir::Program& program);

}  // namespace fovea::cudnn

// Combinations of cuDNN version, architecture and feature that give wrong results or crash, each
// with the reason and what it holds for. A row can go when no version in its range is in use.
#pragma once

#include <vector>

#include "attention/engine.h"

namespace fovea::cudnn {

std::vector<Reason> known_bad(int version, int sm, const Problem& problem);

}  // namespace fovea::cudnn

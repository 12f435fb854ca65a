// What a plan of engine cudnn will take, and a warning if that is more than its score is worth.
#pragma once

#include "engines/cudnn/lower.h"

namespace fovea::cudnn {

void note_cost(const Problem& baked, const Lowered& lowered, const Device& device,
               Verdict& verdict);

}  // namespace fovea::cudnn

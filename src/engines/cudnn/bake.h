// What a cuDNN plan depends on: nearly all of the Problem. Values that come with a call (scale,
// scalars, literals, seeds, offsets) are taken out.
#pragma once

#include "attention/engine.h"

namespace fovea::cudnn {

Baking bake(const Problem& problem);

}  // namespace fovea::cudnn

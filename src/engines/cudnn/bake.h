// What a cuDNN plan depends on: nearly all of the Problem. Values that come with a call (scale,
// scalars, literals, seeds, offsets) are taken out.
#pragma once

#include "attention/engine.h"

namespace fovea::cudnn {

Baking bake(const Problem& problem);

// Formulas compute with b where f32 must hold it exactly: how large it may get is then part of a
// graph. Everywhere else any b_offset can be bound.
bool computes_with_b(const ir::Program& program);

}  // namespace fovea::cudnn

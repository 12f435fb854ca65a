// Replaces what modifiers, masks and their derivatives usually consist of by fewer, larger
// operations. Only values of the inner loop are replaced, only if nothing else reads them, and
// never values that must be computed operation by operation.
#pragma once

#include "engines/cpu/strips/strip_values.h"

namespace fovea::cpu {

void fuse(ValueGraph& values, IntegerSlopes& slopes);

}  // namespace fovea::cpu

// Replaces common sequences of operations in modifiers, masks and their derivatives by fewer,
// larger ones. Only values of the inner loop are replaced, only if nothing else reads them, and
// never values that must be computed operation by operation.
#pragma once

#include "engines/cpu/strips/strip_values.h"

namespace fovea::cpu {

void fuse(ValueGraph& values, IntegerSlopes& slopes);

}  // namespace fovea::cpu

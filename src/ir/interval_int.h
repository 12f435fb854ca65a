// Integer half of ir/interval. In 64 bits: operands are i32, so sums and products are exact.
#pragma once

#include "ir/interval.h"

namespace fovea::ir::ints {

IntInterval hull(IntInterval a, IntInterval b);
IntInterval add(IntInterval a, IntInterval b);
IntInterval subtract(IntInterval a, IntInterval b);
IntInterval multiply(IntInterval a, IntInterval b);
IntInterval divide(Op op, IntInterval a, IntInterval b);     // FloorDiv, TruncDiv
IntInterval remainder(Op op, IntInterval a, IntInterval b);  // FloorMod, TruncRem
IntInterval absolute(IntInterval a);
IntInterval minimum(IntInterval a, IntInterval b);
IntInterval maximum(IntInterval a, IntInterval b);
IntInterval bitwise(Op op, IntInterval a, IntInterval b);  // BitAnd, BitOr, BitXor
IntInterval shift(Op op, IntInterval a, IntInterval b);    // Shl, Shr

}  // namespace fovea::ir::ints

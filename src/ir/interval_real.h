// Real half of ir/interval. Decisions are computed in f32 operation by operation, and rounding to
// nearest is monotone, so applying the very same f32 operation to the ends is sound without
// outward rounding; only functions that come from libm, whose last bit need not be monotone, are
// widened.
#pragma once

#include "ir/interval.h"

namespace fovea::ir::reals {

RealInterval hull(RealInterval a, RealInterval b);
RealInterval add(RealInterval a, RealInterval b);
RealInterval subtract(RealInterval a, RealInterval b);
RealInterval multiply(RealInterval a, RealInterval b);
RealInterval divide(RealInterval a, RealInterval b);
RealInterval negate(RealInterval a);
RealInterval absolute(RealInterval a);
RealInterval minimum(RealInterval a, RealInterval b);
RealInterval maximum(RealInterval a, RealInterval b);
RealInterval function(Op op, RealInterval a);  // exp, tanh, floor, sign ...
RealInterval power(RealInterval a, RealInterval b);
IntInterval to_int(RealInterval a);
RealInterval from_int(IntInterval a);
BoolSet less(RealInterval a, RealInterval b);
BoolSet less_equal(RealInterval a, RealInterval b);
BoolSet equal(RealInterval a, RealInterval b);

}  // namespace fovea::ir::reals

// The mask inside a score modifier: people write select(q >= k, score, -inf) and mean a mask. Found
// in the formula, so that whole tiles can be judged by it as by a mask.
#pragma once

#include "ir/expr.h"

namespace fovea::ir {

// A bool formula that is true only if `mod` is -inf whatever the score is; constant false if
// nothing is known. It uses neither score nor grad.
Expr always_minus_infinity(const Expr& mod);

}  // namespace fovea::ir

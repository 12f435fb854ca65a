// Derivatives that f32 cannot evaluate as they are derived, in a form that it can. Only the values
// of gradients change, and only in their last digits: formulas and decisions stay as they are.
#pragma once

#include "ir/expr.h"

namespace fovea::ir {

// `gradient` is a root of the derivative of `mod`. The gradient of a soft cap c * tanh(x / c) by c
// is tanh(u) - u (1 - tanh(u)^2), a difference of nearly equal numbers of the order of u^3 for
// small u; if the root is that, near u = 0 its series is used. Other roots come back as they
// are.
Expr stable_gradient(const Expr& mod, const Expr& gradient);

}  // namespace fovea::ir

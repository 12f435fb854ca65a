// Makes expressions smaller in ways that ir/build cannot see: what a condition says
// about the branches under it, and what is known about positions. Keeps every value exactly. Used
// on derivatives and traced formulas.
#pragma once

#include "ir/expr.h"
#include "ir/range.h"

namespace fovea::ir {

// How many distinct nodes an expression has.
std::size_t node_count(const Expr& expr);

// select(c, x, y): inside x, c is true; inside y, it is false.
Expr simplify(const Expr& expr);

// Also replaces what has one value over the whole box: comparisons that always hold, the wrap of
// an index that is never negative.
Expr simplify(const Expr& expr, const Box& box);

}  // namespace fovea::ir

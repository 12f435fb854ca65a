// What a modifier adds to the scores of a row, taken apart: a part that is the same for the whole
// row, and a part that is a line along k. Engines put both where large numbers cost no digits: the
// first into the row's logsumexp, the second relative to a tile's own keys.
#pragma once

#include "ir/expr.h"

namespace fovea::ir {

// slope * (k * IndexK + q * IndexQ), with a slope that is constant in a row.
struct Line {
  Expr slope;  // null: there is none
  int k = 0, q = 0;
};

// mod = rest + shift, and rest = without_line + line.
struct RowShift {
  Expr rest, without_line;  // without_line is null if the line is all there is
  Expr shift;               // null: none
  Line line;
};

RowShift split_row_shift(const Expr& mod);

// sum + value, or sum - value; a null sum counts as 0.
Expr plus_term(const Expr& sum, const Expr& value, bool negative);

}  // namespace fovea::ir

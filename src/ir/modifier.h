// What engines look for in a score modifier: a mask written into it, a part that is constant in a
// row, and a part that is linear in k.
#pragma once

#include "ir/expr.h"

namespace fovea::ir {

// People write select(q >= k, score, -inf) and mean a mask. A bool formula that is true only if
// `mod` is -inf whatever the score is, so that tiles can be skipped by it as by a mask; constant
// false if nothing is known. It uses neither score nor grad.
Expr always_minus_infinity(const Expr& mod);

// slope * (k * IndexK + q * IndexQ), with a slope that is constant in a row.
struct SlopeTerm {
  Expr slope;  // null: there is none
  int k = 0, q = 0;
};

// mod = rest + shift, and rest = without_line + line. Large values of either part would cost the
// scores digits, so engines add the shift to the row's logsumexp, and take the line relative to the
// keys of a tile.
struct RowShift {
  Expr rest, without_line;  // without_line is null if the line is all there is
  Expr shift;               // null: none
  SlopeTerm line;
};

RowShift split_row_shift(const Expr& mod);

// sum + value, or sum - value; a null sum counts as 0.
Expr plus_term(const Expr& sum, const Expr& value, bool negative);

}  // namespace fovea::ir

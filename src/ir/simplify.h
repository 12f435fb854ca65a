// Makes expressions smaller without changing any value: NaN, infinities, signed zeros and integer
// overflow included.
#pragma once

#include <span>

#include "ir/expr.h"

namespace fovea::ir {

// A simpler expression equal to op(args), or null if no identity applies. The operands are
// canonical, in canonical order, and not all constants. Called by ir/build for every new node; the
// table of identities is in docs/language.md.
Expr apply_identities(Op op, std::span<const Expr> args);

// How many distinct nodes an expression has.
std::size_t node_count(const Expr& expr);

// Uses what ir/build cannot see, the conditions above a node: in select(c, x, y), c is true inside
// x and false inside y. For derivatives and traced formulas.
Expr simplify(const Expr& expr);

}  // namespace fovea::ir

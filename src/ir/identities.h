// The identities that hold for every input, NaN, infinities, signed zeros and integer overflow
// included; the table is in docs/language.md. Called by ir/build for every new node.
#pragma once

#include <span>

#include "ir/expr.h"

namespace fovea::ir {

// A simpler expression equal to op(args), or null if no identity applies. The operands are
// canonical, in canonical order, and not all constants.
Expr apply_identities(Op op, std::span<const Expr> args);

}  // namespace fovea::ir

// The parser of formulas. Every error is an InvalidArgument that shows the place with a caret, says
// what was expected and names the nearest known name. Nothing it reads can crash it, hang it or
// exhaust memory: ir::limits. Whole Programs are read by parse_program (ir/program.h).
#pragma once

#include <string_view>

#include "ir/program.h"

namespace fovea::ir {

enum class Role : std::uint8_t { Mod, Mask, Bprop, Any };  // which leaves are allowed

// One formula. Slots are indices into the declarations.
Expr parse_formula(std::string_view text, const Declarations& declarations, Role role = Role::Any);

}  // namespace fovea::ir

// Text to expressions and Programs. Every error is an InvalidArgument that shows the place with a
// caret, says what was expected and names the nearest known name. Nothing it reads can crash it,
// hang it or exhaust memory: ir/limits.
#pragma once

#include <string_view>

#include "ir/program.h"

namespace fovea::ir {

enum class Role : std::uint8_t { Mod, Mask, Bprop, Any };  // which leaves are allowed

// One formula. Slots are indices into the declarations.
Expr parse_formula(std::string_view text, const Declarations& declarations, Role role = Role::Any);

// `name:dtype[extents]`, optionally `=data`; `name`, `name:type`, `name=value`, `name:type=value`.
TensorDecl parse_tensor(std::string_view text);
ScalarDecl parse_scalar(std::string_view text, Literals literals = Literals::F32);
void declare(Declarations& declarations, TensorDecl tensor);  // checks names and counts
void declare(Declarations& declarations, ScalarDecl scalar);

// A whole Program: `mod="..." mask="..." bprop="..." tensor="..." scalar="..."`, any order. Its
// literals and the defaults of its scalars are of that kind.
Program parse_program(std::string_view line, Literals literals = Literals::F32);

}  // namespace fovea::ir

// Which operation takes which types, and which leaves a formula may use. The parser asks it for
// overloads; Program asks it for the rules of mod, mask and bprop.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/expr.h"

namespace fovea::ir {

// The operation written `text` in this form, applied to args, with i32 turned into f32 if it
// meets one. Throws InvalidArgument that says which types it takes.
Expr apply_text(std::string_view text, Form form, std::vector<Expr> args);

// True if some operation is written so.
bool is_operation(std::string_view text, Form form);

// Texts of all operations of this form, each once, for suggestions.
std::vector<std::string> operation_names(Form form);

// The rules between formulas: types, and which of score and grad each may use. Null = absent.
void verify_formulas(const Expr& mod, const Expr& mask, const Expr& bprop);

}  // namespace fovea::ir

// What one operation makes of sets of values, as text: an expression over device/interval.h. The
// rules are those of ir/interval.
#pragma once

#include <span>
#include <string>

#include "ir/op.h"

namespace fovea::jit {

// `args`: names of the operands' sets. Leaves, loads and constants have no rule here.
std::string interval_text(ir::Op op, std::span<const std::string> args);

}  // namespace fovea::jit

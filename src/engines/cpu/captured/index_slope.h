// How an index expression changes from one key to the next, if that is the same everywhere.
#pragma once

#include <cstdint>
#include <optional>

#include "ir/expr.h"

namespace fovea::cpu {

// index(k + 1) - index(k), modulo 2^32 as all i32 of formulas; nothing if it is not constant.
std::optional<std::int32_t> slope_along_k(const ir::Expr& index);

}  // namespace fovea::cpu

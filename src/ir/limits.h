// How much text the parser takes, so that nothing it reads can exhaust the stack or the memory.
// Each bound has its own message. Generous: a traced graph of thousands of operations fits.
#pragma once

#include <cstddef>

namespace fovea::ir::limits {

inline constexpr std::size_t text_bytes = std::size_t{1} << 20;
inline constexpr std::size_t nesting = 200;       // parentheses, calls, prefixes inside one another
inline constexpr std::size_t operations = 20000;  // in one formula, counted as written
inline constexpr std::size_t depth = 4000;        // operations on one path, through `let` too
inline constexpr std::size_t name_length = 64;
inline constexpr std::size_t captured = 256;  // tensors and scalars, each
inline constexpr std::size_t rank = 8;        // of a captured tensor

}  // namespace fovea::ir::limits

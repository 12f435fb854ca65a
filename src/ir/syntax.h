// What the parser and the printer must agree on: how tightly operators bind, and how literals are
// spelt.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "ir/expr.h"

namespace fovea::ir {

// As in C; a higher number binds tighter. 0: not an infix operator.
constexpr int precedence(std::string_view infix) {
  constexpr std::array<std::pair<std::string_view, int>, 19> table{{
      {"||", 2}, {"&&", 3}, {"|", 4},  {"^", 5},   {"&", 6},  {"==", 7}, {"!=", 7},
      {"<", 8},  {"<=", 8}, {">", 8},  {">=", 8},  {"<<", 9}, {">>", 9}, {"+", 10},
      {"-", 10}, {"*", 11}, {"/", 11}, {"//", 11}, {"%", 11},
  }};
  for (const auto& [text, level] : table) {
    if (text == infix) return level;
  }
  return 0;
}
inline constexpr int choice_precedence = 1;   // c ? x : y
inline constexpr int prefix_precedence = 12;  // - ! ~
inline constexpr int atom_precedence = 13;

// Shortest text that reads back bit for bit: 0.1, 30.0, 1e+20, -inf, nan; 7; true.
std::string literal_text(const Node& constant);

}  // namespace fovea::ir

// Named formulas: texts that the parser expands where their name is used and nothing captured is
// called so.
#pragma once

#include <array>
#include <string_view>

namespace fovea::ir {

struct Stock {
  std::string_view name;
  std::string_view parameter;  // at most one; empty: used without parentheses
  std::string_view text;
};

inline constexpr std::array<Stock, 6> stock_formulas{{
    {"causal", "", "q >= k"},
    {"causal_bottom_right", "", "q + (Skv - Sq) >= k"},
    {"sliding", "n", "q >= k && q - k < n"},
    {"prefix", "n", "k < n || q >= k"},
    {"softcap", "x", "x * tanh(score / x)"},
    {"alibi", "", "score + exp2(-8 * (h + 1) / H) * (k - q)"},
}};

}  // namespace fovea::ir

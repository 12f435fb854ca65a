// The names that the language itself knows: leaves, words, stock formulas.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/op.h"

namespace fovea::ir {

// Named formulas: texts that the parser expands if their name is used and nothing captured has it.
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

const OpInfo* find_leaf(std::string_view name);  // score, q, Skv ...; null if none
const Stock* find_stock(std::string_view name);  // null if none
bool is_reserved(std::string_view name);         // leaves and words: no captured thing may be so
bool is_name(std::string_view text);             // a letter or _, then letters, digits, _
std::vector<std::string> language_names();       // all of them, and the functions: to suggest

// What to write for a word of Python ("and", "not", "if" ...).
std::optional<std::string> python_word(std::string_view name);

}  // namespace fovea::ir

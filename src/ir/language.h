// The vocabulary and the type rules of the formula language: which names it knows, which operation
// takes which types, and which leaves each formula of a Program may use.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/expr.h"

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
bool is_reserved(std::string_view name);         // leaves and words: not for captured things
std::vector<std::string> language_names();       // all of them, with functions: for suggestions

// What to write for a word of Python ("and", "not", "if" ...).
std::optional<std::string> python_word(std::string_view name);

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

// The names that the language itself knows: leaves, words, stock formulas.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/op.h"
#include "ir/stock.h"

namespace fovea::ir {

const OpInfo* find_leaf(std::string_view name);  // score, q, Skv ...; null if none
const Stock* find_stock(std::string_view name);  // null if none
bool is_reserved(std::string_view name);         // leaves and words: no captured thing may be so
bool is_name(std::string_view text);             // a letter or _, then letters, digits, _
std::vector<std::string> language_names();       // all of them, and the functions: to suggest

// What to write for a word of Python ("and", "not", "if" ...).
std::optional<std::string> python_word(std::string_view name);

}  // namespace fovea::ir

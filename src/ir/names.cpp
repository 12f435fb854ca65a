#include "ir/names.h"

#include <algorithm>
#include <array>

#include "ir/verify.h"

namespace fovea::ir {
namespace {

constexpr std::array<std::string_view, 5> words{"let", "true", "false", "inf", "nan"};

}  // namespace

const OpInfo* find_leaf(std::string_view name) {
  for (const OpInfo& row : all_ops) {
    if (row.form == Form::Leaf && row.text == name) return &row;
  }
  return nullptr;
}

const Stock* find_stock(std::string_view name) {
  for (const Stock& stock : stock_formulas) {
    if (stock.name == name) return &stock;
  }
  return nullptr;
}

bool is_reserved(std::string_view name) {
  return std::ranges::find(words, name) != words.end() || find_leaf(name) != nullptr;
}

bool is_name(std::string_view text) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return !text.empty() && letter(text[0]) &&
         std::ranges::all_of(text, [&](char c) { return letter(c) || digit(c); });
}

std::vector<std::string> language_names() {
  std::vector<std::string> names = operation_names(Form::Call);
  names.emplace_back("select");
  for (const std::string_view word : words) names.emplace_back(word);
  for (const Stock& stock : stock_formulas) names.emplace_back(stock.name);
  for (const OpInfo& row : all_ops) {
    if (row.form == Form::Leaf) names.emplace_back(row.text);
  }
  return names;
}

std::optional<std::string> python_word(std::string_view name) {
  if (name == "and") return "&&";
  if (name == "or") return "||";
  if (name == "not") return "!x";
  if (name == "if" || name == "else") return "c ? x : y";
  if (name == "True") return "true";
  if (name == "False") return "false";
  if (name == "kv_idx" || name == "kv") return "k";
  if (name == "q_idx") return "q";
  if (name == "where") return "select(c, x, y)";
  if (name == "float") return "f32(x)";
  if (name == "int") return "i32(x)";
  if (name == "minimum") return "min(x, y)";
  if (name == "maximum") return "max(x, y)";
  return std::nullopt;
}

}  // namespace fovea::ir

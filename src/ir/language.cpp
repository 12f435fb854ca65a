#include "ir/language.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "ir/build.h"

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

namespace {

// The rows of one text and form, found by a short linear search over the distinct texts.
struct Overloads {
  std::string_view text;
  Form form;
  std::vector<const OpInfo*> rows;
};

const std::vector<Overloads>& overload_table() {
  static const auto* table = [] {
    auto* out = new std::vector<Overloads>;  // leaked: used until the process ends
    for (const OpInfo& row : all_ops) {
      if (row.arity() == 0) continue;
      const auto same = [&](const Overloads& o) {
        return o.text == row.text && o.form == row.form;
      };
      auto at = std::find_if(out->begin(), out->end(), same);
      if (at == out->end()) at = out->insert(at, {row.text, row.form, {}});
      at->rows.push_back(&row);
    }
    return out;
  }();
  return *table;
}

const Overloads* find_overloads(std::string_view text, Form form) {
  for (const Overloads& overloads : overload_table()) {
    if (overloads.form == form && overloads.text == text) return &overloads;
  }
  return nullptr;
}

bool takes(const OpInfo& row, std::span<const Expr> args, bool widen) {
  if (row.arity() != args.size()) return false;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const bool exact = args[i]->type() == row.argument(i);
    const bool widened = widen && args[i]->type() == Type::I32 && row.argument(i) == Type::F32;
    if (!exact && !widened) return false;
  }
  return true;
}

// i32 turns into f32 if it meets one, or if the operation knows f32 alone.
bool may_widen(const Overloads& overloads, std::span<const Expr> args) {
  if (is_cast_text(overloads.text)) return false;
  const bool meets =
      std::ranges::any_of(args, [](const Expr& arg) { return arg->type() == Type::F32; });
  const bool only_f32 = std::ranges::none_of(overloads.rows, [&](const OpInfo* row) {
    return row->arity() == args.size() && row->argument(0) == Type::I32;
  });
  return meets || only_f32;
}

std::string describe(const OpInfo& row) {
  std::string out;
  for (std::size_t i = 0; i < row.arity(); ++i) {
    out += (i == 0 ? "" : ", ") + std::string(type_name(row.argument(i)));
  }
  return "(" + out + ")";
}

std::string advice(const Overloads& overloads, std::span<const Expr> args) {
  const bool bools =
      std::ranges::all_of(args, [](const Expr& arg) { return arg->type() == Type::Bool; });
  if (bools && overloads.text == "&") return "; for bool write &&";
  if (bools && overloads.text == "|") return "; for bool write ||";
  if (bools && overloads.text == "^") return "; for bool write !=";
  if (bools && overloads.text == "~") return "; for bool write !";
  if (overloads.text == "//" || overloads.text == "%") return "; for f32 write floor(x / y)";
  const bool compares = overloads.text == "<" || overloads.text == "<=";
  if (compares && args[0]->type() == Type::Bool && args[1]->type() != Type::Bool) {
    return "; a chain is written a < b && b < c";
  }
  if (overloads.text == "&&" || overloads.text == "||" || overloads.text == "!") {
    return "; turn a number into bool with x != 0";
  }
  return "; cast with f32(x), i32(x) or bool(x)";
}

// `text` as it was written.
[[noreturn]] void refuse(std::string_view text, const Overloads& overloads,
                         std::span<const Expr> args) {
  std::string takes_text, got;
  bool right_count = false;
  for (const OpInfo* row : overloads.rows) {
    takes_text += (takes_text.empty() ? "" : " or ") + describe(*row);
    right_count = right_count || row->arity() == args.size();
  }
  for (const Expr& arg : args) {
    got += (got.empty() ? "" : ", ") + std::string(type_name(arg->type()));
  }
  throw InvalidArgument("'" + std::string(text) + "' takes " + takes_text + ", got (" + got + ")" +
                        (right_count ? advice(overloads, args) : ""));
}

void forbid(const Expr& formula, Depends what, const std::string& message) {
  if (formula && any(formula->depends(), what)) throw InvalidArgument(message);
}

void expect_type(const Expr& formula, Type type, const std::string& rule,
                 const std::string& help = "") {
  if (formula && formula->type() != type) {
    throw InvalidArgument(rule + ", got " + std::string(type_name(formula->type())) + help);
  }
}

}  // namespace

Expr apply_text(std::string_view text, Form form, std::vector<Expr> args) {
  // a > b is b < a, for NaN too.
  const bool turned = form == Form::Infix && (text == ">" || text == ">=");
  const Overloads* overloads = find_overloads(!turned ? text : text == ">" ? "<" : "<=", form);
  if (overloads == nullptr) throw InvalidArgument("no operation '" + std::string(text) + "'");
  if (turned) std::swap(args[0], args[1]);
  for (const bool widen : {false, true}) {
    if (widen && !may_widen(*overloads, args)) break;
    for (const OpInfo* row : overloads->rows) {
      if (!takes(*row, args, widen)) continue;
      for (std::size_t i = 0; i < args.size(); ++i) {
        if (args[i]->type() != row->argument(i)) args[i] = to_f32(args[i]);
      }
      return make(row->op, args);
    }
  }
  // A cast to the type that a value has already is no operation.
  const bool same_cast =
      args.size() == 1 && form == Form::Call && text == type_name(args[0]->type());
  if (same_cast) return args[0];
  if (turned) std::swap(args[0], args[1]);
  refuse(text, *overloads, args);
}

bool is_operation(std::string_view text, Form form) {
  return find_overloads(text, form) != nullptr;
}

std::vector<std::string> operation_names(Form form) {
  std::vector<std::string> names;
  for (const Overloads& overloads : overload_table()) {
    if (overloads.form == form) names.emplace_back(overloads.text);
  }
  return names;
}

void verify_formulas(const Expr& mod, const Expr& mask, const Expr& bprop) {
  expect_type(mod, Type::F32, "mod must be f32 (the modified score)");
  expect_type(mask, Type::Bool, "mask must be bool (true where a score is kept)", "; write x != 0");
  expect_type(bprop, Type::F32, "bprop must be f32 (the gradient of the score)");
  forbid(mod, Depends::Grad, "mod uses 'grad', which only a bprop formula has");
  forbid(mask, Depends::Grad, "mask uses 'grad', which only a bprop formula has");
  forbid(mask, Depends::Score,
         "mask uses 'score', but a mask depends on positions alone; "
         "give a mod that yields -inf if a score decides");
  if (bprop && !mod) {
    throw InvalidArgument("bprop is given without mod: it is the derivative of nothing");
  }
}

}  // namespace fovea::ir

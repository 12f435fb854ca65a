#include "ir/parse.h"

#include <charconv>
#include <limits>
#include <optional>
#include <unordered_map>

#include "base/error.h"
#include "base/words.h"
#include "ir/build.h"
#include "ir/language.h"
#include "ir/lexer.h"
#include "ir/program.h"

namespace fovea::ir {
namespace {

std::string_view role_name(Role role) {
  switch (role) {
    case Role::Mod: return "mod";
    case Role::Mask: return "mask";
    case Role::Bprop: return "bprop";
    case Role::Any: return "formula";
  }
  return "?";
}

class Parser {
 public:
  Parser(std::string_view text, const Declarations& declarations, Role role)
      : declarations_(declarations), role_(role), lexer_({role_name(role), text}) {}

  // Names bound from outside: the argument of a stock formula.
  void bind(std::string_view name, const Expr& value) { lets_.emplace(name, value); }

  Expr formula() {
    Expr value = body();
    const Token& rest = lexer_.peek();
    if (rest.kind == TokenKind::End) return value;
    if (rest.text == "=") lexer_.fail(rest, "unexpected '='; for equality write '=='");
    const auto word = python_word(rest.text);
    if (word) lexer_.fail(rest, "unexpected '" + std::string(rest.text) + "'; write " + *word);
    lexer_.fail(rest, "expected an operator or the end, got " + describe(rest));
  }

 private:
  // Counts nesting; recursion happens only under one of these: in choice() and prefix().
  struct Nest {
    Nest(Parser& parser, const Token& at) : depth(parser.nesting_) {
      if (++depth > limits::nesting) {
        parser.lexer_.fail(at, "nested more than " + std::to_string(limits::nesting) +
                                   " deep; name parts of it with 'let x = ...;'");
      }
    }
    ~Nest() { --depth; }
    std::size_t& depth;
  };

  // let name = value; ... value
  Expr body() {
    std::vector<std::string> mine;
    while (lexer_.peek().kind == TokenKind::Name && lexer_.peek().text == "let") {
      lexer_.take();
      const Token name = lexer_.take();
      check_new_name(name);
      lexer_.expect_symbol("=", "'let " + std::string(name.text) + "'");
      Expr value = choice();
      lexer_.expect_symbol(";", "the value of '" + std::string(name.text) + "'");
      lets_.emplace(name.text, std::move(value));
      mine.emplace_back(name.text);
    }
    Expr value = choice();
    for (const std::string& name : mine) lets_.erase(name);
    return value;
  }

  void check_new_name(const Token& name) {
    if (name.kind != TokenKind::Name) {
      lexer_.fail(name, "expected a name after 'let', got " + describe(name));
    }
    const std::string text(name.text);
    if (is_reserved(text)) lexer_.fail(name, "'" + text + "' is a word of the language");
    if (lets_.contains(text)) lexer_.fail(name, "'" + text + "' is defined already");
    if (find_tensor(text) || find_scalar(text)) {
      lexer_.fail(name, "'" + text + "' is declared already as a captured name");
    }
  }

  Expr choice() {
    const Nest nest(*this, lexer_.peek());
    Expr condition = infix(choice_precedence + 1);
    const Token question = lexer_.peek();
    if (!lexer_.take_symbol("?")) return condition;
    Expr then = choice();
    lexer_.expect_symbol(":", "the second part of '?'");
    Expr otherwise = choice();
    return apply(question, "select", Form::Choice,
                 {std::move(condition), std::move(then), std::move(otherwise)});
  }

  Expr infix(int weakest) {
    Expr left = prefix();
    while (lexer_.peek().kind == TokenKind::Symbol) {
      const int level = precedence(lexer_.peek().text);
      if (level < weakest || level == 0) break;
      const Token symbol = lexer_.take();
      if (symbol.text == "*" && lexer_.peek().text == "*") {
        lexer_.fail(lexer_.peek(), "there is no '**'; write pow(x, y)");
      }
      Expr right = infix(level + 1);
      left = apply(symbol, symbol.text, Form::Infix, {left, right});
    }
    return left;
  }

  Expr prefix() {
    const Token symbol = lexer_.peek();
    for (const std::string_view text : {"-", "!", "~"}) {
      if (!lexer_.take_symbol(text)) continue;
      const Nest nest(*this, symbol);
      // -2147483648 is a literal: its positive half does not exist.
      if (text == "-" && lexer_.peek().kind == TokenKind::Number) {
        return number(lexer_.take(), /*negative=*/true);
      }
      return apply(symbol, text, Form::Prefix, {prefix()});
    }
    return atom();
  }

  Expr atom() {
    const Token token = lexer_.take();
    if (token.kind == TokenKind::Number) return number(token, /*negative=*/false);
    if (token.kind == TokenKind::Name) return name(token);
    if (token.text == "(") {
      Expr value = body();
      lexer_.expect_symbol(")", "the part opened by '('");
      return value;
    }
    lexer_.fail(token, "expected a value (a name, a number or '('), got " + describe(token));
  }

  Expr number(const Token& token, bool negative) {
    const std::string text = (negative ? "-" : "") + std::string(token.text);
    const char* const first = text.data();
    const char* const last = first + text.size();
    const bool hex = token.text.starts_with("0x") || token.text.starts_with("0X");
    if (hex) return hex_number(token, negative);
    std::int32_t integer = 0;
    const auto [end, error] = std::from_chars(first, last, integer);
    if (end == last && error == std::errc{}) return constant(integer);
    if (end == last) {
      lexer_.fail(token, "'" + text + "' does not fit i32; write " + text + ".0 for f32");
    }
    float real = 0;
    const auto [float_end, float_error] = std::from_chars(first, last, real);
    if (float_end != last || float_error == std::errc::invalid_argument) {
      lexer_.fail(token, "'" + text + "' is not a number");
    }
    if (float_error == std::errc::result_out_of_range) {
      lexer_.fail(token, "'" + text + "' does not fit f32; write inf or 0.0");
    }
    double wide = 0;  // cannot fail either
    std::from_chars(first, last, wide);
    return literal(real, wide);
  }

  Expr hex_number(const Token& token, bool negative) {
    std::uint32_t value = 0;
    const char* const last = token.text.data() + token.text.size();
    const auto [end, error] = std::from_chars(token.text.data() + 2, last, value, 16);
    if (end != last || error != std::errc{}) {
      lexer_.fail(token, "'" + std::string(token.text) + "' is not a 32-bit hexadecimal number");
    }
    const Expr bits = constant(static_cast<std::int32_t>(value));
    return negative ? -bits : bits;
  }

  Expr name(const Token& token) {
    const std::string text(token.text);
    if (lexer_.peek().text == "[") return load(token);
    if (lexer_.peek().text == "(") return call(token);
    if (const auto let = lets_.find(text); let != lets_.end()) return let->second;
    if (const auto slot = find_scalar(text)) {
      return scalar(declarations_.scalars[*slot].type, *slot);
    }
    if (text == "true" || text == "false") return constant(text == "true");
    if (text == "inf") return constant(std::numeric_limits<float>::infinity());
    if (text == "nan") return constant(std::numeric_limits<float>::quiet_NaN());
    if (const OpInfo* row = find_leaf(text)) return checked_leaf(token, row->op);
    if (find_tensor(text)) {
      lexer_.fail(token, "'" + text + "' is a tensor: index it, as in " + text + "[h]");
    }
    if (const Stock* stock = find_stock(text)) return expand(token, *stock, {});
    unknown(token);
  }

  Expr checked_leaf(const Token& token, Op op) {
    if (op == Op::Score && role_ == Role::Mask) {
      lexer_.fail(token,
                  "'score' can't be used in a mask, which depends on positions alone; "
                  "let the mod yield -inf if a score decides");
    }
    if (op == Op::Grad && (role_ == Role::Mod || role_ == Role::Mask)) {
      lexer_.fail(token, "'grad' exists only in a bprop formula");
    }
    return leaf(op);
  }

  [[noreturn]] void unknown(const Token& token) {
    const std::string text(token.text);
    if (is_operation(text, Form::Call) || text == "select") {
      lexer_.fail(token, "'" + text + "' is a function: write " + text + "(...)");
    }
    if (const auto word = python_word(text)) {
      lexer_.fail(token, "unknown name '" + text + "'; write " + *word);
    }
    std::vector<std::string> known = language_names();
    for (const auto& [let, value] : lets_) known.push_back(let);
    for (const TensorDecl& tensor : declarations_.tensors) known.push_back(tensor.name);
    for (const ScalarDecl& scalar : declarations_.scalars) known.push_back(scalar.name);
    std::string hint = did_you_mean(text, known);
    if (hint.empty()) hint = "; captured names are declared with tensor=... or scalar=...";
    lexer_.fail(token, "unknown name '" + text + "'" + hint);
  }

  Expr load(const Token& token) {
    const std::string text(token.text);
    const auto slot = find_tensor(text);
    if (!slot) {
      if (find_scalar(text)) lexer_.fail(token, "'" + text + "' is a scalar: it has no index");
      if (lets_.contains(text) || find_leaf(text) != nullptr) {
        lexer_.fail(token, "'" + text + "' is not a captured tensor: it has no index");
      }
      std::vector<std::string> known;
      for (const TensorDecl& tensor : declarations_.tensors) known.push_back(tensor.name);
      lexer_.fail(token, "unknown tensor '" + text + "'" + did_you_mean(text, known) +
                             " (declare it, as in tensor=\"" + text + ":f32[H]\")");
    }
    const TensorDecl& tensor = declarations_.tensors[*slot];
    const std::vector<Expr> at = list("[", "]", "the indices of '" + text + "'");
    if (at.size() != tensor.extents.size()) {
      lexer_.fail(token, "'" + text + "' has rank " + std::to_string(tensor.extents.size()) +
                             ", got " + std::to_string(at.size()) +
                             (at.size() == 1 ? " index" : " indices"));
    }
    for (std::size_t i = 0; i < at.size(); ++i) {
      if (at[i]->type() == Type::I32) continue;
      lexer_.fail(token, "index " + std::to_string(i) + " of '" + text + "' must be i32, got " +
                             std::string(type_name(at[i]->type())) + "; cast with i32(x)");
    }
    return counted(token, ir::load(loaded_type(tensor.dtype), *slot, at));
  }

  Expr call(const Token& token) {
    const std::string text(token.text);
    const Stock* stock = find_stock(text);
    const bool operation = is_operation(text, Form::Call) || text == "select";
    if (!operation && stock == nullptr) {
      if (find_tensor(text)) {
        lexer_.fail(token, "'" + text + "' is a tensor: write " + text + "[...]");
      }
      if (const auto word = python_word(text)) {
        lexer_.fail(token, "unknown function '" + text + "'; write " + *word);
      }
      std::vector<std::string> known = operation_names(Form::Call);
      known.emplace_back("select");
      for (const Stock& formula : stock_formulas) known.emplace_back(formula.name);
      lexer_.fail(token, "unknown function '" + text + "'" + did_you_mean(text, known));
    }
    const std::vector<Expr> args = list("(", ")", "the arguments of '" + text + "'");
    if (!operation) return expand(token, *stock, args);
    return apply(token, text, text == "select" ? Form::Choice : Form::Call, args);
  }

  Expr expand(const Token& token, const Stock& stock, const std::vector<Expr>& args) {
    const std::size_t wanted = stock.parameter.empty() ? 0 : 1;
    if (args.size() != wanted) {
      lexer_.fail(token, "'" + std::string(stock.name) + "' takes " +
                             (wanted == 0 ? "no argument" : "one argument") + ", got " +
                             std::to_string(args.size()));
    }
    static const Declarations nothing;
    Parser inner(stock.text, nothing, role_);
    if (wanted == 1) inner.bind(stock.parameter, args[0]);
    Expr value;
    try {
      value = inner.formula();
    } catch (const InvalidArgument& error) {  // about the stock text: say it of its use
      const std::string message(error.what());
      const std::size_t start = role_name(role_).size() + 2;  // after "mod: "
      lexer_.fail(token, "in '" + std::string(stock.name) + "' (" + std::string(stock.text) +
                             "): " + message.substr(start, message.find('\n') - start));
    }
    return counted(token, std::move(value));
  }

  std::vector<Expr> list(std::string_view open, std::string_view close, const std::string& what) {
    const Token at = lexer_.peek();
    lexer_.expect_symbol(open, what);
    std::vector<Expr> items;
    if (lexer_.take_symbol(close)) return items;
    do {
      items.push_back(choice());
      if (items.size() > limits::rank) lexer_.fail(at, "too many of " + what);
    } while (lexer_.take_symbol(","));
    lexer_.expect_symbol(close, what);
    return items;
  }

  Expr apply(const Token& at, std::string_view text, Form form, std::vector<Expr> args) {
    Expr value;
    try {
      value = apply_text(text, form, std::move(args));
    } catch (const InvalidArgument& error) {
      lexer_.fail(at, error.what());
    }
    return counted(at, std::move(value));
  }

  Expr counted(const Token& at, Expr value) {
    if (++operations_ > limits::operations) {
      lexer_.fail(at, "more than " + std::to_string(limits::operations) + " operations");
    }
    if (value->depth() > limits::depth) {
      lexer_.fail(at, "a chain of more than " + std::to_string(limits::depth) +
                          " operations, each on the result of the last");
    }
    return value;
  }

  std::optional<std::uint32_t> find_tensor(std::string_view name) const {
    return find_slot(declarations_.tensors, name);
  }
  std::optional<std::uint32_t> find_scalar(std::string_view name) const {
    return find_slot(declarations_.scalars, name);
  }
  template <class Decl>
  static std::optional<std::uint32_t> find_slot(const std::vector<Decl>& decls,
                                                std::string_view name) {
    for (std::uint32_t i = 0; i < decls.size(); ++i) {
      if (decls[i].name == name) return i;
    }
    return std::nullopt;
  }

  const Declarations& declarations_;
  Role role_;
  Lexer lexer_;
  std::unordered_map<std::string, Expr> lets_;
  std::size_t nesting_ = 0;
  std::size_t operations_ = 0;
};

}  // namespace

Expr parse_formula(std::string_view text, const Declarations& declarations, Role role) {
  return Parser(text, declarations, role).formula();
}

}  // namespace fovea::ir

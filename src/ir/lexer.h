// Splits a formula into tokens, with a lookahead of one. Also what the parser and the printer must
// agree on: how tightly operators bind and how literals are written.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "ir/expr.h"

namespace fovea::ir {

enum class TokenKind : std::uint8_t { Number, Name, Symbol, End };

struct Token {
  TokenKind kind = TokenKind::End;
  std::string_view text;
  std::size_t at = 0;  // byte offset in the text
};

// Where and in which formula an error is: throws InvalidArgument whose first line says all, and
// whose next two show the place with a caret.
struct Source {
  std::string_view what;  // "mask", "tensor" ...
  std::string_view text;

  [[noreturn]] void fail(const Token& token, const std::string& message) const;
};

class Lexer {
 public:
  explicit Lexer(Source source);

  const Token& peek() const { return token_; }
  Token take();                             // the current token; moves on
  bool take_symbol(std::string_view text);  // moves on if it is that symbol
  void expect_symbol(std::string_view text, std::string_view after);
  [[noreturn]] void fail(const Token& token, const std::string& message) const {
    source_.fail(token, message);
  }

 private:
  void advance();
  std::size_t number_end(std::size_t from) const;

  Source source_;
  Token token_;
  std::size_t end_ = 0;  // of the current token
};

// "'x'", or "the end".
std::string describe(const Token& token);

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
std::string literal_text(const Node& constant, Literals literals);

}  // namespace fovea::ir

// Cuts a formula into tokens, one ahead.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

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

// "'x'", or "the end of the formula".
std::string describe(const Token& token);

}  // namespace fovea::ir

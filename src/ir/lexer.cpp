#include "ir/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "ir/program.h"

namespace fovea::ir {
namespace {

// <cctype> depends on the locale; the language does not.
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name_char(char c) { return is_name_start(c) || is_digit(c); }
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

constexpr std::array<std::string_view, 9> long_symbols{
    "||", "&&", "==", "!=", "<=", ">=", "<<", ">>", "//"};
constexpr std::string_view short_symbols = "+-*/%<>!~&|^?:()[],;=";

// The line of the text that holds `at`, cut to a window that fits a terminal, and a caret line.
std::string show_place(std::string_view text, std::size_t at, std::size_t length) {
  constexpr std::size_t before = 50, width = 76;
  const std::size_t line_start = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;  // npos + 1 == 0
  const std::size_t line_end = std::min(text.find('\n', at), text.size());
  const std::size_t start = at - line_start > before ? at - before : line_start;
  const std::size_t end = std::min(line_end, start + width);
  std::string line(text.substr(start, end - start));
  for (char& c : line) {
    if (c < 0x20 || c > 0x7e) c = c == '\t' ? ' ' : '?';
  }
  const std::size_t column = at - start;
  const std::size_t room = line.size() > column ? line.size() - column : 1;
  const std::size_t carets = std::clamp<std::size_t>(length, 1, room);
  return "\n  " + line + "\n  " + std::string(column, ' ') + std::string(carets, '^');
}

}  // namespace

void Source::fail(const Token& token, const std::string& message) const {
  throw InvalidArgument(std::string(what) + ": " + message +
                        show_place(text, std::min(token.at, text.size()), token.text.size()));
}

std::string describe(const Token& token) {
  if (token.kind == TokenKind::End) return "the end";
  return "'" + std::string(token.text.substr(0, limits::name_length)) + "'";
}

Lexer::Lexer(Source source) : source_(source) {
  if (source.text.size() > limits::text_bytes) {
    throw InvalidArgument(std::string(source.what) + ": " + std::to_string(source.text.size()) +
                          " bytes of text; at most " + std::to_string(limits::text_bytes) +
                          " are read");
  }
  advance();
}

Token Lexer::take() {
  const Token taken = token_;
  advance();
  return taken;
}

bool Lexer::take_symbol(std::string_view text) {
  const bool found = token_.kind == TokenKind::Symbol && token_.text == text;
  if (found) advance();
  return found;
}

void Lexer::expect_symbol(std::string_view text, std::string_view after) {
  if (take_symbol(text)) return;
  fail(token_, "expected '" + std::string(text) + "' after " + std::string(after) + ", got " +
                   describe(token_));
}

void Lexer::advance() {
  const std::string_view text = source_.text;
  std::size_t at = end_;
  while (at < text.size() && is_space(text[at])) ++at;
  const auto set = [&](TokenKind kind, std::size_t end) {
    token_ = {kind, text.substr(at, end - at), at};
    end_ = end;
  };
  if (at == text.size()) return set(TokenKind::End, at);
  const bool point = text[at] == '.' && at + 1 < text.size() && is_digit(text[at + 1]);
  if (is_digit(text[at]) || point) return set(TokenKind::Number, number_end(at));
  if (is_name_start(text[at])) {
    std::size_t end = at;
    while (end < text.size() && is_name_char(text[end])) ++end;
    set(TokenKind::Name, end);
    if (end - at > limits::name_length) {
      fail(token_, "a name of " + std::to_string(end - at) + " characters; at most " +
                       std::to_string(limits::name_length) + " are allowed");
    }
    return;
  }
  for (const std::string_view symbol : long_symbols) {
    if (text.substr(at, 2) == symbol) return set(TokenKind::Symbol, at + 2);
  }
  set(TokenKind::Symbol, at + 1);
  if (short_symbols.find(text[at]) == std::string_view::npos) {
    const unsigned byte = static_cast<unsigned char>(text[at]);
    fail(token_, byte >= 0x20 && byte < 0x7f
                     ? "unexpected character " + describe(token_)
                     : "unexpected byte " + std::to_string(byte) + " (formulas are ASCII)");
  }
}

// Takes all that could belong to a number; the parser judges whether it is one.
std::size_t Lexer::number_end(std::size_t from) const {
  const std::string_view text = source_.text;
  std::size_t end = from;
  while (end < text.size()) {
    const char c = text[end];
    const char last = end > from ? text[end - 1] : '0';
    const bool hex = text.substr(from, 2) == "0x" || text.substr(from, 2) == "0X";
    const bool sign = (c == '+' || c == '-') && (last == 'e' || last == 'E') && !hex;
    if (!is_name_char(c) && c != '.' && !sign) break;
    ++end;
  }
  return end;
}

std::string literal_text(const Node& constant, Literals literals) {
  switch (constant.type()) {
    case Type::Bool: return constant.bool_value() ? "true" : "false";
    case Type::I32: return std::to_string(constant.int_value());
    case Type::F32: break;
  }
  const float value = constant.float_value();
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 64> buffer;
  const auto write = [&](auto real) {
    return std::to_chars(buffer.data(), buffer.data() + buffer.size(), real).ptr;
  };
  const char* const end = literals == Literals::F32 && constant.rest() == 0
                              ? write(value)
                              : write(constant.double_value());
  std::string text(static_cast<const char*>(buffer.data()), end);
  const bool looks_integer = text.find_first_of(".e") == std::string::npos;
  return looks_integer ? text + ".0" : text;
}

}  // namespace fovea::ir

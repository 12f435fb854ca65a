// Errors about arguments: each names the argument, its value and the rule, in one form. Also prints
// numbers for them.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace fovea {

// The shortest text that reads back as the same number.
template <class T>
  requires std::integral<T> || std::floating_point<T>
std::string number_text(T value) {
  std::array<char, 64> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return std::string(text.data(), end);
}
inline std::string number_list(std::span<const std::int64_t> numbers) {  // "1,2,3"
  std::string out;
  for (const std::int64_t x : numbers) out += (out.empty() ? "" : ",") + number_text(x);
  return out;
}

// What errors call an argument: "lse", "gradient of tensor slopes". Put together for them only.
struct ArgumentName {
  std::string_view kind, own;
  ArgumentName(std::string_view word, std::string_view of = {}) : kind(word), own(of) {}
  ArgumentName(const char* word) : ArgumentName(std::string_view(word)) {}
  std::string text() const {
    return own.empty() ? std::string(kind) : std::string(kind).append(" ").append(own);
  }
};

// "sq=-1: must be 0 or more"
[[noreturn]] inline void refuse(std::string_view argument, std::string_view value,
                                std::string_view rule) {
  std::string text(argument);
  text.append("=").append(value).append(": ").append(rule);
  throw InvalidArgument(text);
}
template <class T>
  requires std::integral<T> || std::floating_point<T>
[[noreturn]] void refuse(std::string_view argument, T value, std::string_view rule) {
  refuse(argument, std::string_view(number_text(value)), rule);
}

// For arguments that have no value to show: "q: must not be null"
[[noreturn]] inline void refuse(std::string_view argument, std::string_view rule) {
  std::string text(argument);
  throw InvalidArgument(text.append(": ").append(rule));
}

// A number, and numbers separated by commas, at least one; refused by this rule if they are none.
template <class T>
T parse_number(std::string_view argument, std::string_view text, const std::string& rule) {
  T value{};
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (end != last || error != std::errc{}) refuse(argument, text.substr(0, 64), rule);
  return value;
}
template <class T>
std::vector<T> parse_numbers(std::string_view argument, std::string_view text,
                             const std::string& rule) {
  std::vector<T> values;
  for (std::string_view rest = text;;) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    values.push_back(parse_number<T>(argument, rest.substr(0, comma), rule));
    if (comma == rest.size()) return values;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace fovea

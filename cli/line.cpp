#include "line.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <stdexcept>
#include <vector>

#include "base/spelling.h"
#include "base/words.h"

namespace fovea::cli {
namespace {

const std::vector<std::string> program_keys{"mod", "mask", "bprop", "tensor", "scalar"};

std::int64_t parse_size(const Word& word) {
  std::int64_t value = 0;
  const char* const last = word.value.data() + word.value.size();
  const auto [end, error] = std::from_chars(word.value.data(), last, value);
  constexpr std::int64_t largest = 2147483647;  // positions are i32
  if (end != last || error != std::errc{} || value < 1 || value > largest) {
    throw std::invalid_argument(word.key + "=" + word.value +
                                ": must be a whole number from 1 to 2147483647");
  }
  return value;
}

// A line starts with `key=`; `q == k ? ...` and `let t = ...` do not.
bool starts_with_key(const std::string& text) {
  std::size_t at = text.find_first_not_of(" \t\n");
  if (at == std::string::npos) return true;
  const auto is_name = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  while (at < text.size() && is_name(text[at])) ++at;
  return at < text.size() && text[at] == '=' && (at + 1 == text.size() || text[at + 1] != '=');
}

}  // namespace

Line parse_line(const std::string& text) {
  Line line;
  std::int64_t seed = 1;
  const std::map<std::string, std::int64_t*> sizes{
      {"b", &line.b}, {"h", &line.h},   {"hkv", &line.hkv}, {"sq", &line.sq}, {"skv", &line.skv},
      {"d", &line.d}, {"dv", &line.dv}, {"seed", &seed}};
  for (const Word& word : split_words(text)) {
    if (const auto size = sizes.find(word.key); size != sizes.end()) {
      *size->second = parse_size(word);
    } else if (std::ranges::find(program_keys, word.key) != program_keys.end()) {
      line.program += (line.program.empty() ? "" : " ") + join_word(word.key, word.value);
    } else {
      std::vector<std::string> known = program_keys;
      for (const auto& [key, value] : sizes) known.push_back(key);
      throw std::invalid_argument("unknown key '" + word.key + "'" +
                                  did_you_mean(word.key, known));
    }
  }
  line.seed = static_cast<std::uint64_t>(seed);
  if (line.hkv == 0) line.hkv = line.h;
  return line;
}

Line parse_line_or_formula(const std::string& text) {
  if (starts_with_key(text)) return parse_line(text);
  Line line;
  line.program = join_word("mod", text);
  return line;
}

}  // namespace fovea::cli

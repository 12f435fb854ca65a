// The fuzzer's target on a fixed number of inputs, for CI: valid programs with their tokens
// changed, and raw bytes. See targets.h; ./dev fuzz runs the real one.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "ir/print.h"
#include "tests/ir/random_program.h"
#include "tests/ir/targets.h"

namespace fovea::test {
namespace {

// What the language is written with, and what it is not.
constexpr const char* tokens[] = {
    "score",   "grad",   "b",    "h",    "q",        "k",       "B",          "H",      "Hkv",
    "Sq",      "Skv",    "let",  "true", "false",    "inf",     "nan",        "select", "exp",
    "log",     "pow",    "tanh", "min",  "max",      "clamp",   "abs",        "sign",   "floor",
    "f32",     "i32",    "bool", "div",  "rem",      "causal",  "sliding",    "prefix", "softcap",
    "alibi",   "x",      "y",    "n",    "t",        "doc",     "bias",       "on",     "w",
    "0",       "1",      "2.0",  "-1",   "0x1f",     "1e-45",   "2147483648", "1e39",   "+",
    "-",       "*",      "/",    "//",   "%",        "<",       "<=",         ">",      ">=",
    "==",      "!=",     "&&",   "||",   "!",        "~",       "&",          "|",      "^",
    "<<",      ">>",     "?",    ":",    "(",        ")",       "[",          "]",      ",",
    ";",       "=",      "**",   "and",  "not",      "if",      "mod=",       "mask=",  "tensor=",
    "scalar=", "bprop=", "\"",   "\\",   "t:f32[H]", "n:i32=3", "\n",         "@",      "\xc3"};

std::vector<std::string> seeds() {
  std::vector<std::string> out;
  const std::filesystem::path folder =
      std::filesystem::path(FOVEA_SOURCE_DIR) / "tests/fuzz/corpus/parse_fuzz";
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    std::ostringstream text;
    text << std::ifstream(file.path(), std::ios::binary).rdbuf();
    out.push_back(text.str());
  }
  std::sort(out.begin(), out.end());  // the order of a folder is any
  return out;
}

// Cut at spaces and at the borders of names and numbers.
std::vector<std::string> cut(const std::string& text) {
  std::vector<std::string> out;
  const auto kind = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
  };
  for (const char c : text) {
    const bool joins = !out.empty() && kind(c) && kind(out.back().back());
    if (joins)
      out.back() += c;
    else
      out.emplace_back(1, c);
  }
  return out;
}

std::string changed(const std::string& text, Random& random,
                    const std::vector<std::string>& others) {
  std::vector<std::string> parts = cut(text);
  for (std::uint32_t edits = 1 + random.below(5); edits > 0 && !parts.empty(); --edits) {
    const std::uint32_t at = random.below(static_cast<std::uint32_t>(parts.size()));
    const auto place = parts.begin() + at;
    switch (random.below(6)) {
      case 0: parts.erase(place); break;
      case 1: parts.insert(place, random.pick(tokens)); break;
      case 2: parts[at] = random.pick(tokens); break;
      case 3:
        std::swap(parts[at], parts[random.below(static_cast<std::uint32_t>(parts.size()))]);
        break;
      case 4: {  // a piece of another input
        const std::vector<std::string> other = cut(random.pick(others));
        if (other.empty()) break;
        const std::uint32_t from = random.below(static_cast<std::uint32_t>(other.size()));
        const std::size_t to = std::min<std::size_t>(other.size(), from + 1 + random.below(6));
        parts.insert(place, other.begin() + from, other.begin() + static_cast<std::ptrdiff_t>(to));
        break;
      }
      default: parts[at] += static_cast<char>(random.below(256)); break;
    }
  }
  std::string out;
  for (const std::string& part : parts) out += part;
  return out.substr(0, 2000);
}

TEST(ParseFuzz, NothingGoesWrong) {
  const std::uint64_t seed = test_seed();
  std::vector<std::string> inputs = seeds();
  ASSERT_FALSE(inputs.empty());
  for (std::uint64_t i = 0; i < 200; ++i) {
    Random random(seed, i);
    inputs.push_back(print(random_program(random, 20)));
  }
  long accepted = 0;
  constexpr std::uint64_t count = cases(200000);
  for (std::uint64_t i = 0; i < count; ++i) {
    Random random(seed, i);
    std::string input;
    if (random.chance(3)) {  // raw bytes
      for (std::uint32_t length = random.below(60); length > 0; --length) {
        input += static_cast<char>(random.below(256));
      }
    } else if (random.chance(10)) {  // tokens alone
      for (std::uint32_t length = random.below(20); length > 0; --length) {
        input += random.pick(tokens) + std::string(random.below(2), ' ');
      }
    } else {
      input = changed(random.pick(inputs), random, inputs);
    }
    const fuzz::ParseOutcome outcome = fuzz::parse_target(input);
    ASSERT_EQ(outcome.failure, "") << seed_text(seed, i) << "\n" << input;
    accepted += outcome.accepted;
    // What is still valid is changed further.
    const bool rich = outcome.accepted && input.size() > 20;
    if (rich && inputs.size() < 2000) inputs.push_back(input);
  }
  std::cout << count << " inputs, " << accepted << " of them valid\n";
  EXPECT_GT(accepted, static_cast<long>(count / 50));
}

}  // namespace
}  // namespace fovea::test

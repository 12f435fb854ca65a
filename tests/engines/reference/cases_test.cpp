// Runs tests/engines/reference/cases.txt: attention computed by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>

#include "tests/engines/reference/example.h"

namespace fovea::test {
namespace {

using Words = std::vector<std::string>;

struct Case {
  std::string name, program;
  std::map<std::string, std::string> sizes, options;
  std::map<std::string, std::vector<double>> inputs, expected;
};

Words words_of(const std::string& text) {
  std::istringstream in(text);
  Words out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

std::map<std::string, std::string> pairs_of(const Words& words, std::size_t first) {
  std::map<std::string, std::string> out;
  for (std::size_t i = first; i < words.size(); ++i) {
    const std::size_t equals = words[i].find('=');
    out[words[i].substr(0, equals)] =
        equals == std::string::npos ? "1" : words[i].substr(equals + 1);
  }
  return out;
}

// Numbers as cases.txt writes them: sums, products and quotients of numbers, ln(x) and exp(x), in
// double and without spaces. Not the formula language, which folds constants in f32.
class NumberReader {
 public:
  explicit NumberReader(const std::string& text) : text_(text) {}

  double sum() {
    double value = product();
    while (take("+")) value += product();
    return value;
  }
  bool at_end() const { return at_ == text_.size(); }

 private:
  double product() {
    double value = factor();
    for (;;) {
      if (take("*")) {
        value *= factor();
      } else if (take("/")) {
        value /= factor();
      } else {
        return value;
      }
    }
  }

  double factor() {
    if (take("-")) return -factor();
    if (take("ln(")) return std::log(inside());
    if (take("exp(")) return std::exp(inside());
    std::size_t used = 0;
    const double value = std::stod(text_.substr(at_), &used);
    at_ += used;
    return value;
  }

  double inside() {
    const double value = sum();
    if (!take(")")) throw std::invalid_argument("no ')' in " + text_);
    return value;
  }

  bool take(const std::string& word) {
    if (text_.compare(at_, word.size(), word) != 0) return false;
    at_ += word.size();
    return true;
  }

  const std::string& text_;
  std::size_t at_ = 0;
};

double parse_number(const std::string& text) {
  NumberReader reader(text);
  const double value = reader.sum();
  if (!reader.at_end()) throw std::invalid_argument("not a number: " + text);
  return value;
}

std::vector<double> numbers_of(const Words& words, std::size_t first) {
  std::vector<double> out;
  for (std::size_t i = first; i < words.size(); ++i) out.push_back(parse_number(words[i]));
  return out;
}

std::vector<Case> read_cases() {
  std::ifstream in(FOVEA_SOURCE_DIR "/tests/engines/reference/cases.txt");
  std::vector<Case> cases;
  for (std::string line; std::getline(in, line);) {
    line = line.substr(0, line.find('#'));
    const Words words = words_of(line);
    if (words.empty()) continue;
    const std::string& key = words[0];
    if (key == "case") {
      cases.push_back({words.at(1), "", {}, {}, {}, {}});
    } else if (key == "sizes") {
      cases.back().sizes = pairs_of(words, 1);
    } else if (key == "options") {
      cases.back().options = pairs_of(words, 1);
    } else if (key == "program") {
      cases.back().program = line.substr(line.find("program") + 7);
    } else if (key == "expect") {
      cases.back().expected[words.at(1)] = numbers_of(words, 2);
    } else {
      cases.back().inputs[key] = numbers_of(words, 1);
    }
  }
  return cases;
}

Sizes sizes_of(const Case& test) {
  Sizes sizes;
  const std::map<std::string, std::int64_t*> fields{
      {"b", &sizes.b},   {"h", &sizes.h},     {"hkv", &sizes.hkv},
      {"sq", &sizes.sq}, {"skv", &sizes.skv}, {"d", &sizes.d},
      {"dv", &sizes.dv}, {"t_q", &sizes.t_q}, {"t_k", &sizes.t_k}};
  for (const auto& [name, value] : test.sizes) *fields.at(name) = std::stoll(value);
  return sizes;
}

std::vector<std::int32_t> list_of(std::string text) {
  std::ranges::replace(text, ',', ' ');
  std::vector<std::int32_t> out;
  for (const std::string& word : words_of(text)) out.push_back(std::stoi(word));
  return out;
}

Problem problem_of(const Case& test) {
  Problem problem = make_problem(sizes_of(test), test.program);
  const auto has = [&](const char* name) { return test.options.contains(name); };
  const auto number = [&](const char* name) {
    return has(name) ? static_cast<std::int32_t>(std::stol(test.options.at(name))) : 0;
  };
  if (has("layout")) problem.layout = Layout::Thd;
  if (has("scale")) problem.scale = std::stof(test.options.at("scale"));
  if (has("dropout")) problem.dropout = std::stof(test.options.at("dropout"));
  problem.sink = problem.want_sink = has("sink");
#define FOVEA_OUTPUT(name, extent, saved) problem.name = saved ? problem.name : has(#name);
#include "fovea/fields.def"
  problem.grad_lse = has("grad_lse");
  problem.has_q_lengths = has("q_lengths"), problem.has_k_lengths = has("k_lengths");
  problem.has_q_offsets = has("q_offsets"), problem.has_k_offsets = has("k_offsets");
  problem.h_offset = number("h_offset");
  problem.q_offset = number("q_offset"), problem.k_offset = number("k_offset");
  problem.want_tensors.assign(problem.program.tensors().size(), has("want_tensors"));
  problem.want_scalars.assign(problem.program.scalars().size(), has("want_scalars"));
  return problem;
}

Example example_of(const Case& test) {
  Example example(problem_of(test));
  const std::map<std::string, std::vector<std::int32_t>*> lists{
      {"q_lengths", &example.q_lengths}, {"k_lengths", &example.k_lengths},
      {"q_starts", &example.q_starts},   {"k_starts", &example.k_starts},
      {"q_offsets", &example.q_offsets}, {"k_offsets", &example.k_offsets}};
  for (const auto& [name, list] : lists) {
    if (test.options.contains(name)) *list = list_of(test.options.at(name));
  }
  if (test.options.contains("seed")) {
    example.seed = std::stoull(test.options.at("seed"), nullptr, 0);
    example.offset = std::stoull(test.options.at("offset"), nullptr, 0);
  }
  return example;
}

Array& array_of(Example& example, const std::string& name) {
  const std::map<std::string, Array*> arrays{
      {"q", &example.q},          {"k", &example.k},
      {"v", &example.v},          {"o", &example.o},
      {"do", &example.grad_o},    {"dq", &example.grad_q},
      {"dk", &example.grad_k},    {"dv", &example.grad_v},
#define FOVEA_OUTPUT(name, extent, saved) {#name, &example.name},
#include "fovea/fields.def"
      {"sink", &example.sink},    {"dsink", &example.grad_sink},
      {"dlse", &example.grad_lse}};
  if (arrays.contains(name)) return *arrays.at(name);
  if (name.starts_with("given_")) return *arrays.at(name.substr(6));
  if (!name.starts_with("d_")) return example.tensor(name).value;
  for (std::size_t slot = 0; slot < example.scalars.size(); ++slot) {
    if (example.problem.program.scalars()[slot].name == name.substr(2)) {
      return example.scalar_gradients[slot];
    }
  }
  return example.tensor(name.substr(2)).gradient;
}

void expect_numbers(const std::vector<double>& got, const std::vector<double>& right) {
  ASSERT_EQ(got.size(), right.size());
  for (std::size_t i = 0; i < right.size(); ++i) {
    if (std::isfinite(right[i])) {
      EXPECT_NEAR(got[i], right[i], 1e-12 * std::max(1.0, std::fabs(right[i]))) << "element " << i;
    } else {
      EXPECT_TRUE(std::isnan(right[i]) ? std::isnan(got[i]) : got[i] == right[i])
          << "element " << i << " is " << got[i] << ", not " << right[i];
    }
  }
}

void run_case(const Case& test) {
  Example example = example_of(test);
  for (const auto& [name, numbers] : test.inputs) {
    if (!name.starts_with("given_")) array_of(example, name).assign(numbers);
  }
  example.forward();
  for (const auto& [name, numbers] : test.inputs) {
    if (name.starts_with("given_")) array_of(example, name).assign(numbers);
  }
  example.backward();
  for (const auto& [name, numbers] : test.expected) {
    SCOPED_TRACE(name);
    expect_numbers(array_of(example, name).numbers(), numbers);
  }
}

TEST(Cases, AllByHand) {
  const std::vector<Case> cases = read_cases();
  ASSERT_GE(cases.size(), 28u);
  std::set<std::string> names;
  for (const Case& test : cases) {
    SCOPED_TRACE(test.name);
    EXPECT_TRUE(names.insert(test.name).second);
    EXPECT_FALSE(test.expected.empty());
    run_case(test);
  }
}

TEST(Cases, NumbersAreRead) {
  EXPECT_EQ(parse_number("-3/4"), -0.75);
  EXPECT_EQ(parse_number("3/4*ln(3)"), 0.75 * std::log(3.0));
  EXPECT_EQ(parse_number("1+exp(2)"), 1 + std::exp(2.0));
  EXPECT_EQ(parse_number("-inf"), -INFINITY);
  EXPECT_TRUE(std::isnan(parse_number("nan")));
  EXPECT_THROW(parse_number("1x"), std::invalid_argument);
}

}  // namespace
}  // namespace fovea::test

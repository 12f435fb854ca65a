// Engine jit on a GPU: every line of the list and random lines, forward and backward,
// against the reference. None may be refused, f64 aside. tools/gpu.sh runs these in as many
// processes as there are cores, since compiling kernels and computing the reference take all the
// time.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "gpu_pair.h"
#include "tests/conformance/random_line.h"
#include "tests/conformance/trial.h"

namespace fovea::gpu_tests {

// Which lines a process has begun and how each of them ended, in the file that FOVEA_TEST_RECORD
// names. A GPU fault ends a process: the next one of the same file goes on behind the line that it
// was at. Without the variable nothing is kept.
class Record {
 public:
  static Record& of_this_process();

  bool was_begun(const std::string& key) const;  // by an earlier process of this file
  void begin(const std::string& key, const std::string& line);
  // `complaints` empty: it was right.
  void end(const std::string& key, const std::vector<cli::Comparison>& comparisons,
           const std::vector<std::string>& complaints);

 private:
  Record();
  void write(const std::string& text);

  std::string path_;
  std::vector<std::string> begun_;
};

Record& Record::of_this_process() {
  static Record record;
  return record;
}

Record::Record() {
  const char* const path = std::getenv("FOVEA_TEST_RECORD");
  if (path == nullptr) return;
  path_ = path;
  std::ifstream in(path_);
  const std::string word = "begin ";
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(word)) continue;
    begun_.push_back(line.substr(word.size(), line.find(' ', word.size()) - word.size()));
  }
  std::ranges::sort(begun_);
}

bool Record::was_begun(const std::string& key) const {
  return std::ranges::binary_search(begun_, key);
}

void Record::write(const std::string& text) {
  if (path_.empty()) return;
  std::ofstream out(path_, std::ios::app);
  out << text << "\n";
}

void Record::begin(const std::string& key, const std::string& line) {
  write("begin " + key + " " + line);
}

void Record::end(const std::string& key, const std::vector<cli::Comparison>& comparisons,
                 const std::vector<std::string>& complaints) {
  std::string text = (complaints.empty() ? "pass " : "FAIL ") + key;
  for (const cli::Comparison& one : comparisons) {
    char error[96];
    std::snprintf(error, sizeof error, " %s %.2g", one.name.c_str(), one.relative);
    text += error;
  }
  if (!complaints.empty()) text += "  " + complaints.front();
  std::ranges::replace(text, '\n', ' ');
  write(text);
}

// Ends the process with status 3 if the GPU can't be used any more: what follows would fail for
// that reason alone.
void stop_if_the_gpu_is_lost(const std::string& key) {
  try {
    cli::Gpu* const gpu = cli::Gpu::find(tested_device());
    if (gpu != nullptr) gpu->wait();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: the GPU is lost: %s\n", key.c_str(), error.what());
    std::fflush(nullptr);
    _exit(3);
  }
}

namespace {

using conformance::Case;

void hold_to_the_reference(const std::string& key, const Case& problem) {
  Record& record = Record::of_this_process();
  if (record.was_begun(key)) return;
  record.begin(key, problem.directives + problem.line);
  std::vector<std::string> complaints;
  std::vector<cli::Comparison> comparisons;
  try {
    complaints = conformance::complaints(problem, tested_engine(), tested_device(), &comparisons);
  } catch (const std::exception& error) {
    complaints.emplace_back(error.what());
  }
  for (const std::string& one : complaints) {
    ADD_FAILURE() << key << " " << problem.directives << problem.line << "\n" << one;
  }
  record.end(key, comparisons, complaints);
  if (!complaints.empty()) stop_if_the_gpu_is_lost(key);
}

bool is_f64(const Case& problem) { return problem.line.find("f64") != std::string::npos; }

class JitList : public testing::TestWithParam<Case> {};

TEST_P(JitList, EqualsTheReference) {
  NEED_JIT();
  const Case& problem = GetParam();
  if (is_f64(problem)) {
    EXPECT_NE(conformance::verdict(tested_engine(), problem, tested_device()), "pass");
    return;
  }
  hold_to_the_reference("list:" + std::to_string(problem.number), problem);
}

std::string line_name(const testing::TestParamInfo<Case>& info) {
  return "line" + std::to_string(info.param.number);
}
INSTANTIATE_TEST_SUITE_P(Lines, JitList, testing::ValuesIn(conformance::read_problems()),
                         line_name);

// Forty lines of all kinds, small: for compute-sanitizer.
class JitSanitized : public testing::TestWithParam<Case> {};

TEST_P(JitSanitized, EqualsTheReference) {
  NEED_JIT();
  hold_to_the_reference("sanitized:" + std::to_string(GetParam().number), GetParam());
}
INSTANTIATE_TEST_SUITE_P(
    Lines, JitSanitized,
    testing::ValuesIn(conformance::read_problems("tests/gpu/sanitized_lines.txt")), line_name);

// Random lines: FOVEA_TEST_COUNT of them in blocks that processes can share. Fifty of each
// structure, since compiling its kernels takes seconds; a structure belongs to one block, so that
// no process waits for another one's build.
constexpr std::uint64_t blocks = 64, sizes_of_one_structure = 50;

class JitRandom : public testing::TestWithParam<std::uint64_t> {};

TEST_P(JitRandom, EqualsTheReference) {
  NEED_JIT();
  const char* const given = std::getenv("FOVEA_TEST_COUNT");
  const std::uint64_t all = given != nullptr ? std::strtoull(given, nullptr, 10) : 5000;
  const std::uint64_t seed = test::test_seed();
  const std::uint64_t structures = (all + sizes_of_one_structure - 1) / sizes_of_one_structure;
  for (std::uint64_t s = GetParam(); s < structures; s += blocks) {
    for (std::uint64_t i = 0; i < sizes_of_one_structure; ++i) {
      const std::uint64_t number = s * sizes_of_one_structure + i;
      if (number >= all) break;
      test::Random structure(seed, s), sizes(seed + 1, number);
      const conformance::RandomLine drawn = conformance::random_line(structure, sizes);
      Case problem;
      problem.line = drawn.line;
      problem.data = drawn.data;
      if (drawn.data.poison_masked_kv) problem.directives += "#! poison_masked_kv ";
      if (drawn.data.spread_captured) problem.directives += "#! spread_captured ";
      const std::string key = std::to_string(seed) + ":" + std::to_string(number);
      hold_to_the_reference("random:" + key, problem);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Blocks, JitRandom, testing::Range<std::uint64_t>(0, blocks));

}  // namespace
}  // namespace fovea::gpu_tests

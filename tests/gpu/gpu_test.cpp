// Engine cudnn on a GPU, run by hand through ./dev gpu: every line of the list that it claims
// against the reference, plans that were compiled without the GPU, threads, CUDA graphs, batches.
// FOVEA_TEST_DEVICE names the device; without it every test here is skipped.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "gpu_pair.h"
#include "tests/conformance/random_formula.h"
#include "tests/conformance/trial.h"

namespace fovea::conformance {
namespace {

using gpu_tests::tested_device;

// Which lines are seen to be right, and how far from the reference, is written down.
void record(const Case& problem, const std::vector<cli::Comparison>& comparisons) {
  const char* const path = std::getenv("FOVEA_TEST_RECORD");
  if (path == nullptr) return;
  std::ofstream out(path, std::ios::app);
  bool within = true;
  std::string errors;
  for (const cli::Comparison& one : comparisons) {
    char text[64];
    std::snprintf(text, sizeof text, " %s %.2g", one.name.c_str(), one.relative);
    errors += text;
    within = within && one.within;
  }
  out << (within ? "pass" : "FAIL") << errors << "  " << problem.directives << problem.line << "\n";
}

void expect_right(const Case& problem) {
  std::vector<cli::Comparison> comparisons;
  EXPECT_EQ(complaints(problem, "cudnn", tested_device(), &comparisons), std::vector<std::string>{})
      << problem.line;
  record(problem, comparisons);
}

class OnGpu : public testing::TestWithParam<Case> {};

TEST_P(OnGpu, EqualsTheReference) {
  NEED_GPU();
  const Case& problem = GetParam();
  if (problem.data.poison_masked_kv) {
    GTEST_SKIP() << "cuDNN multiplies keys and values that are hidden by 0: NaN among them spreads";
  }
  if (const std::string code = verdict("cudnn", problem, tested_device()); code != "pass") {
    GTEST_SKIP() << "refused: " << code;  // pinned in cudnn_h200.txt
  }
  if (problem.line.find("rng=engine") != std::string::npos) {
    GTEST_SKIP() << "numbers of its own: see dropout_test";
  }
  expect_right(problem);
}

// Random formulas, in blocks that can be shared by processes.
class RandomOnGpu : public testing::TestWithParam<int> {};
TEST_P(RandomOnGpu, EqualsTheReference) {
  NEED_GPU();
  const std::uint64_t seed = test::test_seed() + static_cast<std::uint64_t>(GetParam());
  std::printf("FOVEA_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  test::Random random(seed);
  for (int i = 0; i < 24; ++i) {
    Case problem;
    const std::int64_t length = 64 + static_cast<std::int64_t>(random.below(100));
    problem.line = "b=3 h=2 sq=" + std::to_string(length) + " d=64 dtype=bf16 direction=both " +
                   random_formula(random, {3, 2, length, length}).words;
    if (verdict("cudnn", problem, tested_device()) == "pass") expect_right(problem);
  }
}
INSTANTIATE_TEST_SUITE_P(Blocks, RandomOnGpu, testing::Range(0, 12));

std::string line_name(const testing::TestParamInfo<Case>& info) {
  return "line" + std::to_string(info.param.number);
}
INSTANTIATE_TEST_SUITE_P(Lines, OnGpu, testing::ValuesIn(read_problems()), line_name);

}  // namespace
}  // namespace fovea::conformance

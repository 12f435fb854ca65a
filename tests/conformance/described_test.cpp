// Engine cudnn on the list without a GPU: what it claims for a described H200, cuDNN itself must
// support, and much of it is compiled to whole plans.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <set>

#include "attention/problem_text.h"
#include "cuda/find_device.h"
#include "cuda/libraries.h"
#include "engines/cudnn/engine.h"
#include "engines/cudnn/graph.h"
#include "problems.h"
#include "random_formula.h"

namespace fovea::conformance {
namespace {

// Without NVIDIA's packages nothing can be asked. CI has them: ./dev setup installs them.
#define NEED_CUDNN()                                                               \
  if (!cudnn::graphs_are_built_in()) GTEST_SKIP() << "built without engine cudnn"; \
  if (!cuda::cudnn_library().usable()) GTEST_SKIP() << cuda::cudnn_library().problem

std::vector<Problem> directions(const Case& problem) {
  ProblemLine parsed = parse_problem_line(problem.line);
  std::vector<Problem> out;
  if (parsed.forward) out.push_back(*parsed.forward);
  if (parsed.backward) out.push_back(*parsed.backward);
  return out;
}

std::vector<Case> claimed() {
  std::vector<Case> out;
  for (const Case& problem : read_problems()) {
    if (verdict("cudnn", problem, "h200") == "pass") out.push_back(problem);
  }
  return out;
}

// The engine x line matrix: `code line`, every line of the list once.
TEST(Described, MatrixIsThePinnedOne) {
  NEED_CUDNN();
  std::set<std::string> pinned, today;
  std::ifstream in(FOVEA_SOURCE_DIR "/tests/conformance/cudnn_h200.txt");
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line.front() != '#') pinned.insert(line);
  }
  for (const Case& problem : read_problems()) {
    const std::string code = verdict("cudnn", problem, "h200");
    today.insert(code + " " + problem.directives + problem.line);
  }
  for (const std::string& one : today) {
    EXPECT_TRUE(pinned.contains(one)) << "not in cudnn_h200.txt: " << one;
  }
  for (const std::string& one : pinned) {
    EXPECT_TRUE(today.contains(one)) << "in cudnn_h200.txt, but no longer so: " << one;
  }
}

TEST(Described, WhatIsExpectedCudnnSupports) {
  NEED_CUDNN();
  const Engine& engine = cudnn_engine();
  const Device h200 = cuda::find_device("h200");
  int count = 0;
  for (const Case& problem : claimed()) {
    for (const Problem& direction : directions(problem)) {
      const Verdict proven = engine.prove(engine.bake(direction, h200).baked, h200);
      EXPECT_EQ(proven.answer, Answer::Proven)
          << problem.line << ": " << (proven.reasons.empty() ? "" : describe(proven.reasons[0]));
      ++count;
    }
  }
  std::printf("cuDNN supports %d graphs of %zu lines\n", count, claimed().size());
  EXPECT_GE(claimed().size(), 60u);
}

// Formulas that nobody chose: what is expected is supported, and cuDNN survives being asked.
TEST(Described, RandomFormulasAreJudgedRight) {
  NEED_CUDNN();
  const Engine& engine = cudnn_engine();
  const Device h200 = cuda::find_device("h200");
  const std::uint64_t seed = test::test_seed();
  std::printf("FOVEA_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  test::Random random(seed);
  int claimed_ones = 0;
  for (int i = 0; i < 300; ++i) {
    const RandomFormula formula = random_formula(random, {2, 4, 96, 96});
    Case problem;
    problem.line = "b=2 h=4 sq=96 d=64 dtype=bf16 direction=both " + formula.words;
    if (verdict("cudnn", problem, "h200") != "pass") continue;
    ++claimed_ones;
    for (const Problem& direction : directions(problem)) {
      try {
        const Verdict proven = engine.prove(engine.bake(direction, h200).baked, h200);
        EXPECT_EQ(proven.answer, Answer::Proven)
            << problem.line << ": " << (proven.reasons.empty() ? "" : describe(proven.reasons[0]));
      } catch (const std::exception& failure) {
        ADD_FAILURE() << problem.line << ": " << failure.what();
      }
    }
  }
  std::printf("%d of 300 are claimed\n", claimed_ones);
}

// In a few processes (see tests/CMakeLists.txt): a plan takes a second.
class WholePlans : public testing::TestWithParam<Case> {};
TEST_P(WholePlans, Compile) {
  NEED_CUDNN();
  const Engine& engine = cudnn_engine();
  const Device h200 = cuda::find_device("h200");
  for (const Problem& direction : directions(GetParam())) {
    EXPECT_NE(engine.compile(engine.bake(direction, h200).baked, h200), nullptr);
  }
}
// Every second one: some eighty lines.
std::vector<Case> compiled() {
  std::vector<Case> out;
  if (!cuda::cudnn_library().usable()) return out;  // asked whenever this program starts
  for (const Case& problem : claimed()) {
    if (problem.number % 2 == 0) out.push_back(problem);
  }
  return out;
}
std::string line_name(const testing::TestParamInfo<Case>& info) {
  return "line" + std::to_string(info.param.number);
}
// Without cuDNN there are none, which must be seen.
TEST(WholePlansOfTheList, AreMany) {
  NEED_CUDNN();
  EXPECT_GE(compiled().size(), 60u);
}
INSTANTIATE_TEST_SUITE_P(Lines, WholePlans, testing::ValuesIn(compiled()), line_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(WholePlans);

}  // namespace
}  // namespace fovea::conformance

// Engine cudnn on the list without a GPU: what it claims for a described H200, cuDNN itself must
// support, and much of it is compiled to whole plans.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <set>

#include "attention/device.h"
#include "attention/problem_text.h"
#include "base/error.h"
#include "cuda/driver.h"
#include "cuda/libraries.h"
#include "engines/cudnn/engine.h"
#include "engines/cudnn/graph.h"
#include "engines/cudnn/judge.h"
#include "engines/cudnn/plan.h"
#include "engines/jit/bake.h"
#include "engines/jit/prepare.h"
#include "problems.h"
#include "random_formula.h"
#include "random_line.h"
#include "store/plan_store.h"

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

// `code line` of every line that is refused, but for its type.
TEST(Described, RefusalsAreThePinnedOnes) {
  NEED_CUDNN();
  std::set<std::string> today;
  for (const Case& problem : read_problems()) {
    const std::string code = verdict("cudnn", problem, "h200");
    if (code == "pass" || code == "dtype") continue;
    today.insert(code + " " + problem.directives + problem.line);
  }
  EXPECT_EQ(unpinned(today, "cudnn_h200.txt"), std::vector<std::string>{});
}

// Why cuDNN's own support check refuses a line that is claimed; "" if it agrees.
std::string disagreement(const Case& problem, const Device& h200) try {
  for (const Problem& direction : directions(problem)) {
    const Baked baked = cudnn_engine().bake(direction, h200).baked;
    const Judged judged = cudnn_engine().judge(baked, h200);
    if (judged.answer != Answer::Expected) return "not expected";
    cudnn::check_graphs(baked.problem, cudnn::lowered_by(judged), h200);
  }
  return "";
} catch (const std::exception& failure) {
  return failure.what();
}

TEST(Described, WhatIsExpectedCudnnSupports) {
  NEED_CUDNN();
  const Device h200 = cuda::find_device("h200");
  for (const Case& problem : claimed()) EXPECT_EQ(disagreement(problem, h200), "") << problem.line;
  std::printf("cuDNN supports %zu lines\n", claimed().size());
  EXPECT_GE(claimed().size(), 60u);
}

// A proof is a plan: it is built, and judged as proven from then on.
TEST(Described, AProofIsAPlanThatIsKept) {
  NEED_CUDNN();
  const Device h200 = cuda::find_device("h200");
  Case problem;
  problem.line = "b=3 h=2 sq=136 d=64 dtype=bf16 mask=causal mod=\"score + 0.25\"";
  const Baked baked = cudnn_engine().bake(directions(problem).front(), h200).baked;
  EXPECT_EQ(cudnn_engine().judge(baked, h200).answer, Answer::Expected);
  store::Recording recording;
  EXPECT_EQ(cudnn_engine().prove(baked, h200).answer, Answer::Proven);
  EXPECT_EQ(recording.take().size(), 2u);  // slices of 2 and of 1
  EXPECT_EQ(cudnn_engine().judge(baked, h200).answer, Answer::Proven);
}

// Random lines: what is expected is supported, and asking cuDNN does not crash.
template <class Draw>
void judge_random_lines(Draw draw, std::uint64_t usual) {
  const Device h200 = cuda::find_device("h200");
  const std::uint64_t seed = test::test_seed();
  const char* const given = std::getenv("FOVEA_TEST_COUNT");
  const std::uint64_t all = given != nullptr ? std::strtoull(given, nullptr, 10) : usual;
  std::uint64_t claimed_ones = 0;
  for (std::uint64_t i = 0; i < all; ++i) {
    test::Random random(seed, i);
    Case problem;
    problem.line = draw(random);
    if (verdict("cudnn", problem, "h200") != "pass") continue;
    ++claimed_ones;
    EXPECT_EQ(disagreement(problem, h200), "") << test::seed_text(seed, i) << "\n" << problem.line;
  }
  std::printf("FOVEA_TEST_SEED=%llu: %llu of %llu lines are claimed\n",
              static_cast<unsigned long long>(seed), static_cast<unsigned long long>(claimed_ones),
              static_cast<unsigned long long>(all));
}

TEST(Described, RandomFormulasAreJudgedRight) {
  NEED_CUDNN();
  judge_random_lines(
      [](test::Random& random) {
        return "b=2 h=4 sq=96 d=64 dtype=bf16 direction=both " +
               random_formula(random, {2, 4, 96, 96}).words;
      },
      300);
}

TEST(Described, RandomLinesAreJudgedRight) {
  NEED_CUDNN();
  judge_random_lines(random_gpu_line, 300);
}

// What a stored file holds may be anything: an error that read_back() knows to build again after.
TEST(Described, BytesThatAreNoPlanAreRefused) {
  NEED_CUDNN();
  cuda::ensure_driver_or_stand_in();
  test::Random random(test::test_seed());
  for (int i = 0; i < 300; ++i) {
    std::vector<std::uint8_t> bytes(random.below(400));
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random.bits());
    if (i % 2 == 0) bytes.insert(bytes.begin(), {'{', 'U', 4, 't', 'a', 'g', 's'});
    EXPECT_THROW(cudnn::load(bytes, nullptr), DeviceError) << i;
  }
}

// In a few processes (see tests/CMakeLists.txt): a plan takes a second.
class WholePlans : public testing::TestWithParam<Case> {};
TEST_P(WholePlans, Compile) {
  NEED_CUDNN();
  const Engine& engine = cudnn_engine();
  const Device h200 = cuda::find_device("h200");
  for (const Problem& direction : directions(GetParam())) {
    const Baked baked = engine.bake(direction, h200).baked;
    EXPECT_NE(engine.compile(baked, engine.judge(baked, h200), h200), nullptr);
  }
}
// Some twenty lines, others with another FOVEA_TEST_SEED, all with FOVEA_TEST_ALL=1. That cuDNN
// takes every line was asked above: it seldom refuses to compile then.
std::vector<Case> compiled() {
  std::vector<Case> out;
  if (!cuda::cudnn_library().usable()) return out;  // asked whenever this program starts
  const bool all = std::getenv("FOVEA_TEST_ALL") != nullptr;
  for (const Case& problem : claimed()) {
    if (all || problem.number % 8 == static_cast<int>(test::test_seed() % 8)) {
      out.push_back(problem);
    }
  }
  return out;
}
std::string line_name(const testing::TestParamInfo<Case>& info) {
  return "line" + std::to_string(info.param.number);
}
// Without cuDNN there are none, which must be seen.
TEST(WholePlansOfTheList, AreMany) {
  NEED_CUDNN();
  EXPECT_GE(compiled().size(), 12u);
}
INSTANTIATE_TEST_SUITE_P(Lines, WholePlans, testing::ValuesIn(compiled()), line_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(WholePlans);

// Engine jit on the list without a GPU: it claims for described GPUs what engine cpu runs on a
// host, and has a text for every kernel of it.

// Its backward takes narrower heads than its forward.
bool has_wide_backward(const Case& problem) {
  const ProblemLine parsed = parse_problem_line(problem.line);
  if (!parsed.backward) return false;
  const Sizes& sizes = parsed.backward->sizes;
  return sizes.d > jit::widest_backward || sizes.dv > jit::widest_backward;
}

TEST(DescribedJit, RefusesWhatEngineCpuRefusesAndNothingElse) {
  for (const Case& problem : read_problems()) {
    const std::string on_host =
        has_wide_backward(problem) ? "head_dim" : verdict("cpu", problem, "cpu");
    for (const std::string& device : built_in_devices()) {
      EXPECT_EQ(verdict("jit", problem, device), on_host) << device << ": " << problem.line;
    }
  }
}

TEST(DescribedJit, HasATextForEveryKernel) {
  const Device h200 = find_device("h200");
  for (const Case& problem : read_problems()) {
    if (verdict("jit", problem, "h200") != "pass") continue;
    const ProblemLine parsed = parse_problem_line(problem.line);
    for (const auto* direction : {&parsed.forward, &parsed.backward}) {
      if (!*direction) continue;
      const jit::PreparedPlan prepared = jit::prepare(jit::bake(**direction).baked.problem, h200);
      EXPECT_FALSE(prepared.units.empty()) << problem.line;
    }
  }
}

}  // namespace
}  // namespace fovea::conformance

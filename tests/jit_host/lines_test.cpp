// Engine jit without a GPU: its kernels run on the host, for lines of the list and for random
// lines, and are compared with the reference engine. Lines run until FOVEA_TEST_SECONDS have passed
// (see lines.h), beginning with one that is drawn from FOVEA_TEST_SEED or the time.
// FOVEA_TEST_ALL=1 runs the whole list, FOVEA_TEST_LINE=n that line of the file. FOVEA_TEST_TIMES=1
// prints how long each line takes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "cli/check/call.h"
#include "tests/conformance/random_line.h"
#include "tests/ir/random.h"
#include "tests/jit_host/lines.h"

namespace fovea::on_host {
namespace {

using conformance::Case;

constexpr int parts = 2;  // processes that share the list

// One run in four uses the general kernels only, unless FOVEA_JIT_TIER is set: else no 16-bit
// forward would run them.
class JitOnHost : public testing::TestWithParam<int> {
 protected:
  static void SetUpTestSuite() {
    if (seed_of_this_run() % 4 == 3) ::setenv("FOVEA_JIT_TIER", "general", /*overwrite=*/0);
    static const bool once = (use_host_gpu(), true);
    EXPECT_TRUE(once);
  }
};

std::vector<Case> lines_of_part(int part) {
  std::vector<Case> out;
  const int only = static_cast<int>(env_number("FOVEA_TEST_LINE", 0));
  for (const Case& problem : conformance::read_problems()) {
    if (only != 0 ? problem.number == only : problem.number % parts == part) out.push_back(problem);
  }
  return out;
}

// As many as there is time for, from a place that the seed draws.
void expect_right(std::vector<Case> lines) {
  const std::uint64_t seed = seed_of_this_run();
  const auto first = test::Random(seed).below(static_cast<std::uint32_t>(lines.size()));
  std::rotate(lines.begin(), lines.begin() + first, lines.end());
  const Budget budget(env_number("FOVEA_TEST_SECONDS", default_seconds));
  std::size_t count = 0;
  for (; count < lines.size() && budget.is_left(); ++count) {
    const Case& problem = lines[count];
    const double begin = budget.elapsed();
    EXPECT_EQ(complaint(problem), "")
        << problem.directives << problem.line << " (line " << problem.number << ")";
    if (env_number("FOVEA_TEST_TIMES", 0) != 0) {
      std::printf("%6.2f s  line %d\n", budget.elapsed() - begin, problem.number);
    }
  }
  std::printf("FOVEA_TEST_SEED=%llu: %zu of %zu lines\n", static_cast<unsigned long long>(seed),
              count, lines.size());
}

TEST_P(JitOnHost, LinesOfTheListMeetTheReference) {
  const std::vector<Case> lines = lines_of_part(GetParam());
  if (lines.empty()) GTEST_SKIP() << "not a line of this part";
  expect_right(lines);
}

// Four lines of each structure, which share their kernels.
TEST_P(JitOnHost, RandomLinesMeetTheReference) {
  if (env_number("FOVEA_TEST_LINE", 0) != 0) GTEST_SKIP() << "a line of the list is asked for";
  const std::uint64_t seed = seed_of_this_run();
  const Budget budget(env_number("FOVEA_TEST_SECONDS", default_seconds) / 4);
  const auto most = static_cast<std::uint64_t>(env_number("FOVEA_TEST_COUNT", 200));
  std::uint64_t number = static_cast<std::uint64_t>(GetParam()), count = 0;
  for (; count < most && budget.is_left(); ++count, number += parts) {
    test::Random structure(seed, number / 4 / parts * parts + number % parts), sizes(seed, ~number);
    const conformance::RandomLine random = conformance::random_line(structure, sizes);
    Case problem;
    problem.line = random.line;
    problem.data = random.data;
    EXPECT_EQ(complaint(problem), "") << test::seed_text(seed, number) << "\n" << random.line;
  }
  std::printf("FOVEA_TEST_SEED=%llu: %llu random lines\n", static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(count));
}

INSTANTIATE_TEST_SUITE_P(Parts, JitOnHost, testing::Range(0, parts));

// With deterministic=1 the bits of every gradient must not depend on the order of blocks and
// threads, which is another one in each launch.

constexpr const char* deterministic_lines[] = {
    "b=2 h=4 hkv=2 sq=70 skv=150 d=32 mask=causal_bottom_right",
    "b=3 h=2 sq=40 d=16 dtype=bf16 mod=\"score + t[h]\" tensor=\"t:f32[H]\" grads=q,k,v,t",
    "b=2 h=2 sq=40 d=16 mod=\"score + t[q] * u[k]\" tensor=\"t:f32[Sq]\" tensor=\"u:f32[Skv]\" "
    "grads=q,k,v,t,u",
    "b=3 h=2 sq=30 d=16 mod=\"score + t[h, q, k]\" tensor=\"t:bf16[H,Sq,Skv]\" grads=q,k,v,t",
    "b=2 h=2 sq=50 d=16 mod=\"score + t[h, clamp(q - k, -9, 9) + 9]\" tensor=\"t:f32[H,19]\" "
    "grads=q,k,v,t",
    "b=2 h=2 sq=50 d=16 mod=\"c * tanh(score / c)\" scalar=\"c=2\" sink=1 grads=q,k,v,c,sink",
    // The kernels for sm_90: several tiles of keys and of queries, some of which add nothing to dQ.
    "b=1 h=4 hkv=2 sq=200 skv=400 d=64 dtype=bf16 mask=sliding(90)",
    "b=1 h=2 sq=100 skv=200 d=192 dtype=bf16 mask=sliding(90)",
    "b=1 h=2 sq=200 skv=300 d=128 dtype=bf16 mod=\"score + t[h] + u[q] + w[k]\" "
    "tensor=\"t:f32[H]\" tensor=\"u:f32[Sq]\" tensor=\"w:f32[Skv]\" grads=q,k,v,t,u,w",
};

TEST(DeterministicOnHost, BitsDoNotDependOnTheOrderOfBlocksAndThreads) {
  use_host_gpu();
  for (const std::string line : deterministic_lines) {
    EXPECT_EQ(complaint({0, line + " direction=both deterministic=1", {}, ""}), "") << line;
  }
}

TEST(JitOnHostHopper, LinesOfItsOwn) {
  use_host_gpu();
  const char* const given = std::getenv("FOVEA_TEST_LINE_TEXT");  // this line instead
  if (given != nullptr) {
    EXPECT_EQ(complaint({0, given, {}, ""}), "") << given;
  } else {
    expect_right(conformance::read_problems("tests/jit_host/hopper_lines.txt"));
  }
}

}  // namespace
}  // namespace fovea::on_host

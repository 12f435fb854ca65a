// Engine cudnn without cuDNN and without a GPU: its plans, run on the host from what they ask cuDNN
// for, against the reference. FOVEA_TEST_SEED and FOVEA_TEST_COUNT draw other lines and more.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <set>
#include <thread>

#include "cli/check/gradient_check.h"
#include "engines/cudnn/graph.h"
#include "engines/cudnn/handles.h"
#include "tests/conformance/random_line.h"
#include "tests/conformance/trial.h"
#include "tests/host_gpu/host_engine.h"

namespace fovea::conformance {
namespace {

#define NEED_GRAPHS() \
  if (!cudnn::graphs_are_built_in()) GTEST_SKIP() << "built without engine cudnn"

const std::string engine = "cudnn_on_host";

class HostGpu : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    static const bool once = [] {
      cudnn::on_host::load_host_gpu();
      cudnn::on_host::add_host_engine();
      return true;
    }();
    EXPECT_TRUE(once);
  }
};

// What is wrong with it, in words; "" if nothing is.
std::string complaint(const Case& problem) try {
  const std::vector<std::string> all = complaints(problem, engine);
  return all.empty() ? "" : all.front();
} catch (const std::exception& error) {
  // With a k_offset, a captured tensor may begin at an address that is not aligned for cuDNN. That
  // is known only when a call is made.
  const std::string text = error.what();
  return text.find("does not lie at a multiple of") != std::string::npos ? "" : text;
}

// Multiplications of a forward that a test can afford: longer lines are run by ./dev gpu.
constexpr double affordable_work = 9e6;

TEST_F(HostGpu, LinesOfTheListMeetTheReference) {
  NEED_GRAPHS();
  int count = 0;
  for (const Case& problem : read_problems()) {
    if (!problem.directives.empty() || verdict(engine, problem) != "pass") continue;
    if (cli::forward_work(cli::make_workload(problem.line, 0, {})) > affordable_work) continue;
    EXPECT_EQ(complaint(problem), "") << problem.line << " (line " << problem.number << ")";
    ++count;
  }
  std::printf("%d lines\n", count);
  EXPECT_GE(count, 100);
}

TEST_F(HostGpu, RandomLinesMeetTheReference) {
  NEED_GRAPHS();
  const std::uint64_t seed = test::test_seed();
  const char* const given = std::getenv("FOVEA_TEST_COUNT");
  const std::uint64_t all = given != nullptr ? std::strtoull(given, nullptr, 10) : test::cases(400);
  std::uint64_t claimed = 0;
  for (std::uint64_t i = 0; i < all; ++i) {
    test::Random random(seed, i);
    Case problem;
    problem.line = random_gpu_line(random);
    std::string code;
    ASSERT_NO_THROW(code = verdict(engine, problem)) << problem.line;
    if (code != "pass") continue;
    ++claimed;
    EXPECT_EQ(complaint(problem), "") << test::seed_text(seed, i) << "\n" << problem.line;
  }
  std::printf("FOVEA_TEST_SEED=%llu: %llu of %llu lines are claimed\n",
              static_cast<unsigned long long>(seed), static_cast<unsigned long long>(claimed),
              static_cast<unsigned long long>(all));
  EXPECT_GE(claimed, all / 5);
}

// Threads that have ended leave their handles to others.
TEST_F(HostGpu, HandlesAreOfOneThreadAndHandedOn) {
  NEED_GRAPHS();
  std::set<void*> seen;
  void* const mine = cudnn::handle_for(0, nullptr);
  for (int i = 0; i < 50; ++i) {
    std::thread([&] {
      void* const other = cudnn::handle_for(0, nullptr);
      EXPECT_NE(other, mine);
      EXPECT_EQ(cudnn::handle_for(0, &seen), other);
      seen.insert(other);
    }).join();
  }
  EXPECT_EQ(cudnn::handle_for(0, nullptr), mine);
  EXPECT_LE(seen.size(), 2u);  // a spare one may have been there
}

}  // namespace
}  // namespace fovea::conformance

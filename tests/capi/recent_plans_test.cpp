// A problem's handle remembers the plans that were asked of it: what it must not remember, and that
// the cache of plans stays the one that keeps them.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "tests/capi/c_call.h"
#include "tests/planner/fake_engine.h"

namespace {

using namespace fovea::testing;

fovea_plan_options by(const char* engine, const char* device = nullptr) {
  return {sizeof(fovea_plan_options), engine, device, nullptr};
}

std::string engine_of(fovea_problem problem, const fovea_plan_options& options) {
  fovea_plan plan = nullptr;
  EXPECT_EQ(fovea_plan_create(problem, &options, &plan), FOVEA_OK) << fovea_last_error();
  const Owned<fovea_plan> owned(plan);
  return fovea_plan_engine(plan);
}

TEST(RecentPlans, EachUseIsAHitOfTheCache) {
  CCall call("h=2 sq=8 d=4");
  const fovea_plan_options options = by("reference");
  const fovea_cache_stats before = statistics();
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(fovea_forward(call.problem.get(), &options, &call.bindings, nullptr), FOVEA_OK);
  }
  EXPECT_EQ(statistics().hits, before.hits + 3);
  EXPECT_EQ(statistics().builds, before.builds);
}

TEST(RecentPlans, AClearedCacheBuildsAgain) {
  CCall call("h=2 sq=8 d=5");
  const fovea_plan_options options = by("reference");
  const std::uint64_t builds = statistics().builds;
  ASSERT_EQ(fovea_cache_clear(), FOVEA_OK);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(fovea_forward(call.problem.get(), &options, &call.bindings, nullptr), FOVEA_OK);
  }
  EXPECT_EQ(statistics().builds, builds + 1);
  EXPECT_EQ(call.outcome(), "accepted");  // the plan that was dropped lives as long as its handle
}

TEST(RecentPlans, EachEngineHasItsOwn) {
  const auto problem = parse_problem("h=2 sq=8 d=6");
  for (int round = 0; round < 2; ++round) {
    for (const char* engine : {"reference", "cpu", "reference"}) {
      EXPECT_EQ(engine_of(problem.get(), by(engine)), engine);
      EXPECT_EQ(engine_of(problem.get(), by(engine, "cpu")), engine);
    }
    EXPECT_EQ(engine_of(problem.get(), by(nullptr)), "cpu");
    EXPECT_EQ(engine_of(problem.get(), by("")), "cpu");
  }
}

TEST(RecentPlans, TheEnvironmentCountsAtEachCall) {
  const auto problem = parse_problem("h=2 sq=8 d=7");
  ASSERT_EQ(unsetenv("FOVEA_ENGINE"), 0);
  EXPECT_EQ(engine_of(problem.get(), by(nullptr)), "cpu");
  ASSERT_EQ(setenv("FOVEA_ENGINE", "reference", 1), 0);
  EXPECT_EQ(engine_of(problem.get(), by(nullptr)), "reference");
  EXPECT_EQ(engine_of(problem.get(), by("cpu")), "cpu");
  ASSERT_EQ(setenv("FOVEA_ENGINE", "cpu", 1), 0);
  EXPECT_EQ(engine_of(problem.get(), by(nullptr)), "cpu");
  ASSERT_EQ(setenv("FOVEA_ENGINE", "nobody", 1), 0);
  fovea_plan plan = nullptr;
  const fovea_plan_options any = by(nullptr);
  EXPECT_EQ(fovea_plan_create(problem.get(), &any, &plan), FOVEA_INVALID_ARGUMENT);
  ASSERT_EQ(unsetenv("FOVEA_ENGINE"), 0);
}

TEST(RecentPlans, AnErrorIsNotForgottenForASuccess) {
  const auto problem = parse_problem("h=2 sq=8 d=8");
  EXPECT_EQ(engine_of(problem.get(), by("cpu")), "cpu");
  fovea_plan plan = nullptr;
  const fovea_plan_options nowhere = by("cpu", "");  // no device: not the default one
  EXPECT_EQ(fovea_plan_create(problem.get(), &nowhere, &plan), FOVEA_INVALID_ARGUMENT);
  EXPECT_EQ(plan, nullptr);
}

TEST(RecentPlans, KeepNoPlanAlive) {
  static FakeEngine fake("remembered");
  fovea::planner().add({&fake, /*only_when_named=*/true});
  const auto problem = parse_problem("h=2 sq=8 d=9");
  EXPECT_EQ(engine_of(problem.get(), by("remembered")), "remembered");
  EXPECT_EQ(*fake.plans_alive, 1);
  ASSERT_EQ(fovea_cache_clear(), FOVEA_OK);
  EXPECT_EQ(*fake.plans_alive, 0);
  EXPECT_EQ(engine_of(problem.get(), by("remembered")), "remembered");
  EXPECT_EQ(fake.compiled, 2);
}

TEST(RecentPlans, AHandleIsSharedByThreads) {
  CCall call("h=1 sq=4 d=4");
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (const char* engine : {"reference", "cpu", "reference"}) {
    threads.emplace_back([&failures, &call, engine] {
      const fovea_plan_options options = by(engine);
      for (int i = 0; i < 200; ++i) {
        fovea_plan plan = nullptr;
        const fovea_status status = fovea_plan_create(call.problem.get(), &options, &plan);
        failures += status != FOVEA_OK || std::string(fovea_plan_engine(plan)) != engine;
        fovea_plan_destroy(plan);
        if (i % 50 == 0) failures += fovea_cache_clear() != FOVEA_OK;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
}

}  // namespace

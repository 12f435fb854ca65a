// The whole planner from sixteen threads, fake engines and the real one, while plans are evicted.
// Run under the preset tsan.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

#include "fovea/fovea.h"
#include "tests/planner/fake_engine.h"

namespace fovea {
namespace {

using namespace testing;

TEST(Threads, OneBuildPerProblemHoweverManyAsk) {
  FakeEngine engine("fast");
  engine.record = false;
  Planner planner({{&engine, false}});
  std::vector<Problem> problems(4, problem_of("h=2 sq=8 d=4 mod=\"score * 3.5\""));
  for (std::size_t i = 0; i < problems.size(); ++i) {
    problems[i].sizes.sq += static_cast<int>(i);
  }
  std::barrier start(thread_count);
  in_threads([&](int) {
    start.arrive_and_wait();
    for (const Problem& problem : problems) {
      const PlannedCall call = planner.make_plan(problem, {device_named("here"), ""});
      EXPECT_EQ(call.engine, "fast");
      EXPECT_EQ(call.literals, std::vector<float>{3.5f});
    }
  });
  EXPECT_EQ(engine.compiled, 4);
}

// Who may not build neither waits for those who do, nor is what they get.
TEST(Threads, ACaptureFailsAlone) {
  FakeEngine engine("fast");
  engine.record = false;
  Planner planner({{&engine, false}});
  const Problem problem = problem_of("h=2 sq=8 d=4");
  PlanRequest captured{device_named("here"), ""};
  captured.may_build = false;
  // Asked while the other is building: it would wait for ever if it waited.
  engine.while_compiling = [&] { EXPECT_THROW(planner.make_plan(problem, captured), DeviceError); };
  EXPECT_EQ(planner.make_plan(problem, {device_named("here"), ""}).engine, "fast");
  EXPECT_EQ(planner.make_plan(problem, captured).engine, "fast");
  engine.while_compiling = [] {};
  in_threads([&](int i) {
    Problem other = problem;
    other.sizes.sq = 20;
    PlanRequest request{device_named("here"), ""};
    request.may_build = i % 2 == 0;
    try {
      EXPECT_EQ(planner.make_plan(other, request).engine, "fast");
    } catch (const DeviceError&) {
      EXPECT_FALSE(request.may_build);
    }
  });
  EXPECT_EQ(engine.compiled, 2);
}

TEST(Threads, ARefusalAtCompileMovesEveryoneOn) {
  FakeEngine first("first"), second("second");
  first.record = second.record = false;
  first.while_compiling = [] { throw Unsupported("not this one"); };
  Planner planner({{&first, false}, {&second, false}});
  const Problem problem = problem_of("h=2 sq=8 d=4");
  std::barrier start(thread_count);
  in_threads([&](int) {
    start.arrive_and_wait();
    EXPECT_EQ(planner.make_plan(problem, {device_named("here"), ""}).engine, "second");
  });
  EXPECT_EQ(second.compiled, 1);
}

TEST(Threads, PlansRunWhileTheyAreEvictedAndTheCacheIsCleared) {
  FakeEngine engine("fast");
  engine.record = false;
  std::atomic<int> running{0};
  engine.work = [&](const Bindings&) { ++running; };
  Planner planner({{&engine, false}});
  planner.cache().limit(2, 0);
  in_threads([&](int thread) {
    Problem problem = problem_of("h=2 sq=8 d=4");
    for (int i = 0; i < 60; ++i) {
      problem.sizes.sq = 1 + (i + thread) % 6;
      const PlannedCall call = planner.make_plan(problem, {device_named("here"), ""});
      if (i % 20 == 7) planner.cache().clear();
      if (i % 10 == 3) planner.explain(problem, {device_named("here"), ""}, false);
      call.plan->run({});
    }
  });
  EXPECT_EQ(running, thread_count * 60);
  planner.cache().clear();
  EXPECT_EQ(*engine.plans_alive, 0);
  const CacheStatistics now = planner.cache().statistics();
  EXPECT_EQ(now.misses, now.builds);
  EXPECT_EQ(now.hits + now.misses, static_cast<std::uint64_t>(thread_count * 60));
}

// The real thing: calls of the C interface with a cache of one plan.
TEST(Threads, CallsThroughTheCInterface) {
  constexpr fovea_plan_options reference{sizeof(fovea_plan_options), "reference", nullptr, nullptr};
  ASSERT_EQ(fovea_cache_limit(1, 0), FOVEA_OK);
  in_threads([&](int thread) {
    const std::string mod = thread % 2 == 0 ? "mod=\"tanh(score)\"" : "mod=\"sin(score)\"";
    fovea_problem problem = nullptr;
    ASSERT_EQ(fovea_problem_parse(("h=2 sq=8 d=4 " + mod).c_str(), &problem, nullptr), FOVEA_OK);
    std::vector<float> q(64, 0.5f), o(64);
    for (int i = 0; i < 20; ++i) {
      fovea_plan plan = nullptr;
      ASSERT_EQ(fovea_plan_create(problem, &reference, &plan), FOVEA_OK) << fovea_last_error();
      alignas(64) std::byte workspace[4096];
      fovea_bindings bindings{};
      bindings.struct_size = sizeof bindings;
      bindings.q.data = bindings.k.data = bindings.v.data = q.data();
      bindings.o.data = o.data();
      bindings.workspace = workspace;
      bindings.workspace_bytes = sizeof workspace;
      EXPECT_EQ(fovea_plan_run(plan, &bindings), FOVEA_OK) << fovea_last_error();
      EXPECT_EQ(o, q);  // the mean of equal rows
      fovea_plan_destroy(plan);
    }
    fovea_problem_destroy(problem);
  });
  ASSERT_EQ(fovea_cache_limit(256, 0), FOVEA_OK);
}

}  // namespace
}  // namespace fovea

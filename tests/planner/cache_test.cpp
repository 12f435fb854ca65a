#include "planner/cache.h"

#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <latch>
#include <thread>
#include <vector>

#include "base/error.h"
#include "tests/planner/fake_engine.h"

namespace fovea {
namespace {

using namespace testing;

PlanKey key(std::int64_t length) {
  PlanKey out{"fake", device_named("here"), {}};
  out.baked.problem.sizes.sq = length;
  return out;
}

struct Builder {
  std::shared_ptr<std::atomic<int>> alive = std::make_shared<std::atomic<int>>(0);
  std::atomic<int> built{0};
  std::size_t bytes = 100;

  PlanCache::Build operator()() {
    return [this] {
      ++built;
      return std::make_unique<FakePlan>(bytes, nullptr, alive);
    };
  }
};

TEST(PlanCache, SecondRequestIsAHit) {
  PlanCache cache;
  Builder builder;
  const auto first = cache.get(key(1), builder());
  const auto second = cache.get(key(1), builder());
  EXPECT_EQ(first, second);
  EXPECT_EQ(builder.built, 1);
  const CacheStatistics now = cache.statistics();
  EXPECT_EQ(now.hits, 1u);
  EXPECT_EQ(now.misses, 1u);
  EXPECT_EQ(now.builds, 1u);
  EXPECT_EQ(now.plans, 1u);
  EXPECT_EQ(now.bytes, 100u);
}

TEST(PlanCache, KeysAreComparedInFull) {
  PlanCache cache;
  Builder builder;
  const PlanKey one = key(1);
  PlanKey other_engine = one, other_baked = one, other_device = one;
  other_engine.engine = "other";
  other_baked.baked.problem.dropout = 0.5f;
  other_device.device.ordinal = 1;
  const auto a = cache.get(one, builder());
  for (const PlanKey& other : {other_engine, other_baked, other_device}) {
    EXPECT_NE(a, cache.get(other, builder()));
  }
  EXPECT_EQ(builder.built, 4);
}

TEST(PlanCache, LeastRecentlyUsedGoesFirst) {
  PlanCache cache;
  Builder builder;
  cache.limit(2, 0);
  cache.get(key(1), builder());
  cache.get(key(2), builder());
  cache.get(key(1), builder());  // used again: 2 is now the oldest
  cache.get(key(3), builder());
  EXPECT_EQ(cache.statistics().evictions, 1u);
  EXPECT_EQ(cache.statistics().plans, 2u);
  cache.get(key(1), builder());
  EXPECT_EQ(builder.built, 3);
  cache.get(key(2), builder());
  EXPECT_EQ(builder.built, 4);
}

TEST(PlanCache, BoundedByBytes) {
  PlanCache cache;
  Builder builder;
  cache.limit(0, 250);
  for (int i = 0; i < 10; ++i) cache.get(key(i), builder());
  EXPECT_EQ(cache.statistics().plans, 2u);
  EXPECT_EQ(cache.statistics().bytes, 200u);
  EXPECT_EQ(*builder.alive, 2);
  builder.bytes = 1000;  // fits nowhere: given out, not kept
  const auto large = cache.get(key(100), builder());
  ASSERT_NE(large, nullptr);
  EXPECT_EQ(cache.statistics().plans, 0u);
  EXPECT_EQ(*builder.alive, 1);
}

TEST(PlanCache, ClearDropsPlansAndKeepsCounters) {
  PlanCache cache;
  Builder builder;
  for (int i = 0; i < 5; ++i) cache.get(key(i), builder());
  cache.clear();
  const CacheStatistics now = cache.statistics();
  EXPECT_EQ(now.plans, 0u);
  EXPECT_EQ(now.bytes, 0u);
  EXPECT_EQ(now.builds, 5u);
  EXPECT_EQ(now.evictions, 0u);
  EXPECT_EQ(*builder.alive, 0);
  cache.get(key(1), builder());
  EXPECT_EQ(builder.built, 6);
}

TEST(PlanCache, LoweringTheLimitEvictsAtOnce) {
  PlanCache cache;
  Builder builder;
  for (int i = 0; i < 8; ++i) cache.get(key(i), builder());
  cache.limit(3, 0);
  EXPECT_EQ(cache.statistics().plans, 3u);
  EXPECT_EQ(cache.statistics().evictions, 5u);
  EXPECT_EQ(*builder.alive, 3);
}

TEST(PlanCache, TouchCountsAndRenews) {
  PlanCache cache;
  Builder builder;
  cache.limit(2, 0);
  const auto kept = cache.get(key(1), builder());
  cache.get(key(2), builder());
  EXPECT_TRUE(cache.touch(*kept));
  cache.get(key(3), builder());  // evicts 2
  EXPECT_TRUE(cache.touch(*kept));
  EXPECT_EQ(cache.statistics().hits, 2u);
  cache.clear();
  EXPECT_FALSE(cache.touch(*kept));
}

TEST(PlanCache, SixteenThreadsOneBuildPerKey) {
  PlanCache cache;
  Builder builder;
  std::barrier start(thread_count);
  constexpr int keys = 8;
  in_threads([&](int) {
    for (int i = 0; i < keys; ++i) {
      start.arrive_and_wait();
      EXPECT_NE(cache.get(key(i), builder()), nullptr);
    }
  });
  EXPECT_EQ(builder.built, keys);
  EXPECT_EQ(cache.statistics().misses, static_cast<std::uint64_t>(keys));
  EXPECT_EQ(cache.statistics().hits, static_cast<std::uint64_t>(keys * (thread_count - 1)));
}

// Every build waits until all of them are under way: possible only outside the lock.
TEST(PlanCache, BuildsOfDifferentKeysRunAtTheSameTime) {
  PlanCache cache;
  Builder builder;
  std::latch all_building(thread_count);
  in_threads([&](int i) {
    cache.get(key(i), [&] {
      all_building.arrive_and_wait();
      return builder()();
    });
  });
  EXPECT_EQ(cache.statistics().builds, static_cast<std::uint64_t>(thread_count));
}

TEST(PlanCache, ABuildMayAskForAnotherPlan) {
  PlanCache cache;
  Builder builder;
  cache.get(key(1), [&] {
    cache.get(key(2), builder());
    return builder()();
  });
  EXPECT_EQ(cache.statistics().plans, 2u);
}

TEST(PlanCache, EveryWaitingThreadGetsTheException) {
  PlanCache cache;
  Builder builder;
  std::atomic<int> attempts{0}, failures{0};
  std::barrier start(thread_count);
  in_threads([&](int) {
    start.arrive_and_wait();
    try {
      cache.get(key(1), [&]() -> std::unique_ptr<Plan> {
        ++attempts;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        throw DeviceError("the compiler is gone");
      });
    } catch (const DeviceError& error) {
      EXPECT_STREQ(error.what(), "the compiler is gone");
      ++failures;
    }
  });
  EXPECT_EQ(failures, thread_count);
  EXPECT_LE(attempts, thread_count);
  EXPECT_EQ(cache.statistics().builds, 0u);
  EXPECT_EQ(cache.statistics().plans, 0u);
  EXPECT_NE(cache.get(key(1), builder()), nullptr);  // a failure is not remembered
}

TEST(PlanCache, AnEngineThatBuildsNothingIsABug) {
  PlanCache cache;
  EXPECT_THROW(cache.get(key(1), [] { return std::unique_ptr<Plan>(); }), InternalError);
}

TEST(PlanCache, EvictedPlansLiveUntilTheirLastUserLetsGo) {
  PlanCache cache;
  Builder builder;
  cache.limit(1, 0);
  in_threads([&](int i) {
    for (int round = 0; round < 50; ++round) {
      const auto plan = cache.get(key((i + round) % 5), builder());
      EXPECT_GT(*builder.alive, 0);
      plan->run({});
    }
  });
  EXPECT_EQ(cache.statistics().plans, 1u);
  EXPECT_EQ(*builder.alive, 1);
  EXPECT_EQ(cache.statistics().evictions + 1, cache.statistics().builds);
}

// A plan's destructor that asks the cache would deadlock if it ran under the lock.
class SlowToDie : public FakePlan {
 public:
  SlowToDie(PlanCache& cache, std::shared_ptr<std::atomic<int>> alive)
      : FakePlan(100, nullptr, std::move(alive)), cache_(cache) {}
  ~SlowToDie() override { cache_.statistics(); }

 private:
  PlanCache& cache_;
};

TEST(PlanCache, PlansAreDestroyedOutsideTheLock) {
  PlanCache cache;
  const auto alive = std::make_shared<std::atomic<int>>(0);
  const auto build = [&] { return std::make_unique<SlowToDie>(cache, alive); };
  cache.limit(1, 0);
  for (int i = 0; i < 4; ++i) cache.get(key(i), build);
  cache.clear();
  cache.get(key(1), build);
  cache.limit(0, 1);
  EXPECT_EQ(*alive, 0);
}

}  // namespace
}  // namespace fovea

// The order of tasks: everything is done once for any number of workers, and all bits stay the
// same.
#include "engines/cpu/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "attention/device.h"
#include "attention/pool.h"
#include "engines/cpu/blocks.h"
#include "engines/cpu/engine.h"
#include "tests/attention/bound_call.h"

namespace fovea::cpu {
namespace {

// How many eighths of each piece of each head were done.
std::vector<int> eighths(const WaveSchedule& schedule, const WaveSchedule::Shape& shape) {
  std::vector<int> done(static_cast<std::size_t>(shape.heads * shape.pieces));
  for (std::int64_t number = 0; number < schedule.tasks(); ++number) {
    const WaveSchedule::Task task = schedule.find(number);
    EXPECT_EQ(task.whole, schedule.is_whole(task.head));
    EXPECT_LT(task.cut, task.cuts);
    EXPECT_LE(task.cuts, shape.most_cuts);
    const std::int64_t first = task.whole ? 0 : task.piece;
    const std::int64_t last = task.whole ? shape.pieces : task.piece + 1;
    for (std::int64_t piece = first; piece < last; ++piece) {
      done.at(static_cast<std::size_t>(task.head * shape.pieces + piece)) += 8 / task.cuts;
    }
  }
  return done;
}

TEST(Schedule, EveryPieceIsDoneOnce) {
  for (const int nodes : {1, 2, 3, 8, 20}) {
    for (const int workers : {1, 2, 3, 7, 16, 64, 127, 128, 500}) {
      for (const WaveSchedule::Shape& shape :
           std::vector<WaveSchedule::Shape>{{0, 3, 8, true},
                                            {1, 1, 1, false},
                                            {8, 11, 8, true},
                                            {8, 11, 8, true, false},
                                            {16, 86, 8, true},
                                            {32, 16, 4, false},
                                            {5, 4, 1, true},
                                            {100, 2, 2, true}}) {
        const WaveSchedule schedule(shape, workers, nodes);
        const std::vector<int> once(static_cast<std::size_t>(shape.heads * shape.pieces), 8);
        EXPECT_EQ(eighths(schedule, shape), once) << nodes << " nodes, " << workers << " workers";
        EXPECT_LE(schedule.homes().size(), static_cast<std::size_t>(most_homes) + 1);
      }
    }
  }
}

TEST(Schedule, AHeadBelongsToOneNode) {
  const WaveSchedule schedule({8, 11, 8, true}, 64, 2);
  ASSERT_EQ(schedule.homes().size(), 3u);
  for (std::int64_t task = 0; task < schedule.tasks(); ++task) {
    EXPECT_EQ(schedule.find(task).head < 4, task < schedule.homes()[1]);
  }
}

TEST(Schedule, NoSequenceHasMorePartsThanThereIsMemoryFor) {
  for (std::int64_t keys = 0; keys < 30000; keys += 37) {
    for (const std::int64_t rows : {1, 16, 17, 96, 97}) {
      for (const std::int64_t fewer : {keys / 3, keys - keys % 128, keys}) {
        EXPECT_LE(split_count(rows, fewer), splits_at_most(rows, keys)) << rows << " " << fewer;
        EXPECT_LE(split_count(rows, fewer), splits_at_most(1, keys)) << rows << " " << fewer;
      }
      EXPECT_GE(split_count(rows, keys) * split_tiles(rows, keys), 1);
    }
  }
}

// Says that it has so many threads on so many nodes, and runs what it is given on the caller.
class Claimed final : public Executor {
 public:
  Claimed(int threads, int nodes) : threads_(threads), nodes_(nodes) {}
  int threads() const override { return threads_; }
  int nodes() const override { return nodes_; }
  int node_here() const override { return nodes_ - 1; }
  void run(std::size_t count, const std::function<void(std::size_t)>& task) override {
    for (std::size_t i = 0; i < count; ++i) task(i);
  }

 private:
  int threads_, nodes_;
};

// All that a call writes, with inputs drawn from a fixed seed.
class Outputs {
 public:
  explicit Outputs(const std::string& line) : call_(line) { draw(); }

  std::vector<char> with(Executor& executor, int threads) {
    Device device = cpu_device();
    device.threads = threads;
    const Baking baking = cpu_engine().bake(call_.problem, device);
    const std::unique_ptr<Plan> plan =
        cpu_engine().compile(baking.baked, cpu_engine().judge(baking.baked, device), device);
    const std::size_t bytes = plan->workspace_bytes(call_.problem.sizes);
    const std::unique_ptr<void, void (*)(void*)> workspace(
        std::aligned_alloc(64, (bytes + 127) / 64 * 64), std::free);
    Bindings& bindings = call_.bindings;
    bindings.workspace = workspace.get();
    bindings.workspace_bytes = bytes;
    bindings.literals = baking.literals;
    bindings.tensors = call_.tensors;
    bindings.scalars = call_.scalars;
    bindings.executor = &executor;
    std::vector<char> out;
    for (const std::span<float> part : written()) {
      std::memset(part.data(), 0xff, part.size_bytes());
    }
    plan->run(bindings);
    for (const std::span<float> part : written()) {
      const auto* const first = reinterpret_cast<const char*>(part.data());
      out.insert(out.end(), first, first + part.size_bytes());
    }
    return out;
  }

 private:
  static std::span<float> numbers(void* data, std::int64_t count) {
    return {static_cast<float*>(data), static_cast<std::size_t>(count)};
  }
  std::int64_t rows() const {
    const Sizes& sizes = call_.problem.sizes;
    return sizes.b * sizes.h * sizes.sq;
  }
  std::int64_t keys() const {
    const Sizes& sizes = call_.problem.sizes;
    return sizes.b * sizes.hkv * sizes.skv;
  }
  bool backward() const { return call_.problem.direction == Direction::Backward; }

  std::vector<std::span<float>> written() {
    const Sizes& sizes = call_.problem.sizes;
    const Bindings& to = call_.bindings;
    if (!backward()) return {numbers(to.o.data, rows() * sizes.dv), numbers(to.lse, rows())};
    return {numbers(to.grad_q.data, rows() * sizes.d), numbers(to.grad_k.data, keys() * sizes.d),
            numbers(to.grad_v.data, keys() * sizes.dv)};
  }

  void draw() {
    std::mt19937 random(20261116);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::span<float> to) {
      for (float& number : to) number = normal(random);
    };
    const Sizes& sizes = call_.problem.sizes;
    const Bindings& to = call_.bindings;
    fill(numbers(to.q.data, rows() * sizes.d));
    fill(numbers(to.k.data, keys() * sizes.d));
    fill(numbers(to.v.data, keys() * sizes.dv));
    if (!backward()) return;
    fill(numbers(to.o.data, rows() * sizes.dv));
    fill(numbers(to.grad_o.data, rows() * sizes.dv));
    std::ranges::fill(numbers(to.lse, rows()), 6.0f);
  }

  test::BoundCall call_;
};

Pool& one_thread() {
  static Pool& pool = *new Pool(1);  // never destroyed, as its class asks
  return pool;
}

void expect_same_bits(const std::string& line, std::initializer_list<int> all_threads,
                      std::initializer_list<int> all_nodes) {
  Outputs outputs(line);
  const std::vector<char> alone = outputs.with(one_thread(), 1);
  for (const int threads : all_threads) {
    for (const int nodes : all_nodes) {
      Claimed claimed(threads, nodes);
      EXPECT_TRUE(outputs.with(claimed, threads) == alone)
          << line << " with " << threads << " threads on " << nodes << " nodes";
    }
  }
  EXPECT_TRUE(outputs.with(own_pool(), own_pool().threads()) == alone) << line;
}

TEST(Schedule, TheSameBitsForAnyNumberOfWorkersAndNodes) {
  for (const char* const line :
       {"b=1 h=2 sq=700 d=64 lse=1", "b=1 h=2 sq=333 d=40 lse=1 mask=causal",
        "b=2 h=4 hkv=2 sq=421 skv=517 d=32 lse=1 mask=\"sliding(77)\" mod=\"softcap(5)\"",
        "b=1 h=3 sq=301 d=64 lse=1 mask=\"(q * 7 + k * 3) % 5 != 0\" mod=alibi dropout=0.2",
        "b=1 h=3 sq=777 d=80 lse=1 mod=alibi", "b=2 h=2 sq=200 d=32 lse=1 qlens=90,200",
        "b=1 h=4 hkv=2 sq=1 skv=3000 d=64 lse=1",
        "b=2 h=2 sq=40 skv=3001 d=64 lse=1 mask=causal_bottom_right",
        "b=1 h=2 sq=777 d=64 direction=backward",
        "b=1 h=4 hkv=2 sq=430 skv=900 d=40 direction=backward mask=causal",
        "b=2 h=2 sq=500 d=32 direction=backward qlens=500,90 klens=500,333"}) {
    expect_same_bits(line, {2, 3, 5, 8, 21, 64, 128}, {1, 3});
  }
}

// The tasks of each region that this executor's workers share.
class Counted final : public Executor {
 public:
  explicit Counted(int threads) : threads_(threads) {}
  int threads() const override { return threads_; }
  void run(std::size_t count, const std::function<void(std::size_t)>& task) override {
    regions.push_back(0);
    most_workers = std::max(most_workers, count);
    task(0);
  }
  void begins(std::int64_t) override { ++regions.back(); }

  std::vector<std::int64_t> regions;
  std::size_t most_workers = 0;

 private:
  int threads_;
};

// Eight heads have 64 chunks of keys; before those, keys and queries are read.
TEST(Schedule, ABackwardOfFewHeadsHasTasksForManyWorkers) {
  Outputs outputs("b=1 h=8 sq=1024 d=16 direction=backward");
  Counted many(128), few(8);
  outputs.with(many, 128);
  ASSERT_EQ(many.regions.size(), 3u);
  EXPECT_GE(many.regions[1], 128);
  outputs.with(few, 8);
  ASSERT_EQ(few.regions.size(), 3u);
  EXPECT_EQ(few.regions[1], 64);
}

// A host may claim more threads than the processors that the plan was made for: work is cut for
// those, and no more workers are asked for.
TEST(Schedule, AnExecutorOfMoreThreadsIsAskedForThoseOfThePlan) {
  Counted two(2), sixteen(16);
  Outputs outputs("b=1 h=8 sq=1024 d=16 direction=backward");
  EXPECT_TRUE(outputs.with(two, 2) == outputs.with(sixteen, 2));
  EXPECT_EQ(sixteen.regions, two.regions);
  EXPECT_EQ(sixteen.most_workers, 2u);
}

// Documents and windows, too: parts of chunks follow what the mask leaves, never the threads.
TEST(Schedule, ABackwardUnderAMaskHasTheSameBitsHoweverItIsShared) {
  for (const char* const line :
       {"b=1 h=2 sq=1500 d=32 direction=backward mask=causal",
        "b=1 h=2 sq=1500 d=32 direction=backward mask=sliding(300)",
        "b=1 h=4 hkv=2 sq=60 skv=1100 d=32 direction=backward mask=causal_bottom_right",
        "b=2 h=2 sq=900 skv=1300 d=72 direction=backward mask=\"q % 512 >= k % 300\" qlens=900,500",
        "b=1 h=2 sq=1024 d=64 direction=backward mask=\"q < 100 || k > 900\""}) {
    expect_same_bits(line, {2, 6, 24, 96}, {1});
  }
}

}  // namespace
}  // namespace fovea::cpu

// Expressions are one object per structure, from every thread, and none is left behind.
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "ir/build.h"
#include "ir/diff.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/simplify.h"
#include "tests/ir/random_program.h"

namespace fovea::test {
namespace {

using namespace ir;

TEST(Intern, TheSameFormulaIsTheSameObject) {
  const std::uint64_t seed = test_seed();
  for (std::uint64_t i = 0; i < cases(5000); ++i) {
    Random one(seed, i), two(seed, i);
    const Expr first = build(draw(one, {.size = 30}));
    const Expr second = build(draw(two, {.size = 30}));
    ASSERT_EQ(first.get(), second.get()) << seed_text(seed, i);
  }
}

TEST(Intern, DifferentFormulasAreDifferentObjectsWithDifferentHashes) {
  const std::uint64_t seed = test_seed();
  std::set<std::string> texts;
  std::set<std::uint64_t> hashes;
  std::vector<Expr> kept;
  std::set<const Node*> nodes;
  for (std::uint64_t i = 0; i < cases(20000); ++i) {
    Random random(seed, i);
    kept.push_back(build(draw(random, {.size = random.below(20)})));
    texts.insert(print(kept.back(), random_declarations()));
    hashes.insert(kept.back()->hash());
    nodes.insert(kept.back().get());
  }
  EXPECT_EQ(texts.size(), nodes.size()) << "seed " << seed;
  EXPECT_EQ(hashes.size(), nodes.size()) << "seed " << seed;
}

TEST(Intern, LeavesNothingBehind) {
  const std::uint64_t seed = test_seed();
  random_declarations();
  const std::size_t before = live_nodes();
  for (std::uint64_t i = 0; i < cases(500); ++i) {
    Random random(seed, i);
    const Program program = random_program(random, 40);
    if (program.mod()) simplify(differentiate(program.mod()).score);
    ASSERT_TRUE(parse_program(print(program)) == program);
    ASSERT_GT(live_nodes(), before) << seed_text(seed, i);
  }
  EXPECT_EQ(live_nodes(), before) << "seed " << seed;
}

TEST(Intern, LongChainsAreCollectedWithoutRecursion) {
  const std::size_t before = live_nodes();
  {
    Expr chain = leaf(Op::Score);
    for (int i = 0; i < 1000000; ++i) chain = make(Op::Tanh, {chain});
    EXPECT_EQ(chain->depth(), 1000001u);
  }
  EXPECT_EQ(live_nodes(), before);
}

// Threads build, share, compare and drop the same small set of formulas, so that nodes die in one
// thread while another looks them up. Meant for the thread sanitizer as well.
TEST(Intern, ManyThreads) {
  const std::uint64_t seed = test_seed();
  random_declarations();
  const std::size_t before = live_nodes();
  std::atomic<int> failures = 0;
  const auto work = [&](std::uint64_t thread) {
    Random choice(seed, 1000 + thread);
    std::vector<Expr> kept(16);
    for (int i = 0; i < 4000; ++i) {
      const std::uint64_t number = choice.below(40);
      Random one(seed, number), two(seed, number);
      const Expr first = build(draw(one, {.size = 12}));
      const Expr second = build(draw(two, {.size = 12}));
      if (first != second) ++failures;
      Expr& place = kept[choice.below(16)];
      place = choice.chance(50) ? first : Expr{};
      if (first->type() == Type::F32 && choice.chance(10)) place = differentiate(first).score;
    }
  };
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) threads.emplace_back(work, t);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0) << "seed " << seed;
  EXPECT_EQ(live_nodes(), before) << "seed " << seed;
}

}  // namespace
}  // namespace fovea::test

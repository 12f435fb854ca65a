// The hash is part of canonical texts (it orders operands) and of cache keys: its values are fixed.
#include "base/hash.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <numeric>
#include <set>

#include "base/inline_vector.h"

namespace fovea {
namespace {

TEST(Hash, IsTheSameEverywhere) {
  static_assert(mix(0) == 0);
  EXPECT_EQ(mix(1), 0x5692161d100b05e5u);
  EXPECT_EQ(hash_combine(0, 0), 0x6db6ca64564daeaau);
  EXPECT_EQ(hash_combine(1, 2), 0x30883360cc68d7b1u);
}

TEST(Hash, DependsOnOrderAndEveryBit) {
  EXPECT_NE(hash_combine(1, 2), hash_combine(2, 1));
  std::set<std::uint64_t> by_seed, by_value;
  for (int bit = 0; bit < 64; ++bit) {
    by_seed.insert(hash_combine(std::uint64_t{1} << bit, 0));
    by_value.insert(hash_combine(0, std::uint64_t{1} << bit));
  }
  EXPECT_EQ(by_seed.size(), 64u);
  EXPECT_EQ(by_value.size(), 64u);
}

TEST(Hash, SpreadsEachBit) {
  for (int bit = 0; bit < 64; ++bit) {  // about half of the bits change
    int changed = 0;
    for (std::uint64_t x = 1; x <= 64; ++x) {
      changed += std::popcount(mix(x) ^ mix(x ^ (std::uint64_t{1} << bit)));
    }
    EXPECT_GT(changed, 64 * 26) << bit;
    EXPECT_LT(changed, 64 * 38) << bit;
  }
}

// A vector with a few places of its own: within them, beyond them, and when it grows.

struct Pair {
  int first = 7;
  std::array<double, 3> rest{};
};

TEST(InlineVector, MadeWithASizeItsElementsAreInitialised) {
  for (const std::size_t size : {0, 1, 4, 5, 100}) {
    const InlineVector<Pair, 4> vector(size);
    ASSERT_EQ(vector.size(), size);
    for (const Pair& one : vector.span()) {
      EXPECT_EQ(one.first, 7);
      EXPECT_EQ(one.rest, (std::array<double, 3>{}));
    }
  }
}

TEST(InlineVector, KeepsWhatItHoldsWhenItGrows) {
  InlineVector<Pair, 4> vector;
  EXPECT_TRUE(vector.span().empty());
  for (int i = 0; i < 1000; ++i) {
    vector.push_back({i, {1.0 * i, 2.0 * i, 3.0 * i}});
    ASSERT_EQ(vector.size(), static_cast<std::size_t>(i) + 1);
    ASSERT_EQ(vector[0].first, 0);
    ASSERT_EQ(vector[static_cast<std::size_t>(i)].rest[2], 3.0 * i);
  }
  int next = 0;
  for (const Pair& one : vector.span()) EXPECT_EQ(one.first, next++);
  vector[999].first = -1;
  EXPECT_EQ(vector.span().back().first, -1);
}

TEST(InlineVector, HoldsPlainNumbersToo) {
  InlineVector<long, 2> numbers(2);
  EXPECT_EQ(numbers[0] + numbers[1], 0);
  for (long i = 0; i < 9; ++i) numbers.push_back(i);
  EXPECT_EQ(std::accumulate(numbers.span().begin(), numbers.span().end(), 0L), 36);
}

}  // namespace
}  // namespace fovea

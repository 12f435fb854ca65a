// A vector with a few places of its own: within them, beyond them, and when it grows.
#include "base/inline_vector.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>

namespace fovea {
namespace {

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

// Sums of device/exact_sum.h: exact, and the same bits in any order.
#define FOVEA_HOST_PRIMITIVES "tests/jit_host/primitives_host.h"
#include "engines/jit/device/exact_sum.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/ir/random.h"

namespace fovea::on_host {
namespace {

using Sum = std::array<unsigned long long, device::exact_words>;

double sum_of(const std::vector<float>& numbers) {
  Sum sum{};
  for (const float x : numbers) device::add_exact(sum.data(), x);
  return device::exact_value(sum.data());
}

TEST(ExactSum, IsExactWhereADoubleHoldsIt) {
  EXPECT_EQ(sum_of({}), 0);
  EXPECT_EQ(sum_of({1.5f, -0.25f}), 1.25);
  EXPECT_EQ(sum_of({-3.0f}), -3);
  EXPECT_EQ(sum_of({-0x1p-149f, -0x1p-149f}), -0x1p-148);
  EXPECT_EQ(sum_of({0x1p-126f, 0x1p127f, -0x1p127f}), 0x1p-126);
  EXPECT_EQ(sum_of({0x1.fffffep127f, 0x1.fffffep127f}), 0x1.fffffep128);
  EXPECT_EQ(sum_of({1e30f, 1.0f, -1e30f, 0x1p-140f, -1.0f}), 0x1p-140);
}

TEST(ExactSum, SaysNanAndInfinity) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(sum_of({1, infinity}), infinity);
  EXPECT_EQ(sum_of({-infinity, 2}), -infinity);
  EXPECT_TRUE(std::isnan(sum_of({infinity, -infinity})));
  EXPECT_TRUE(std::isnan(sum_of({std::nanf(""), 1})));
}

TEST(ExactSum, IsTheSameInAnyOrder) {
  const std::uint64_t seed = test::test_seed();
  test::Random random(seed);
  for (int turn = 0; turn < 200; ++turn) {
    std::vector<float> numbers;
    for (std::uint32_t i = 1 + random.below(60); i > 0; --i) {
      const std::uint32_t bits = random.bits();
      const float x = std::bit_cast<float>(bits);
      if (std::isfinite(x)) numbers.push_back(x);
    }
    const double forwards = sum_of(numbers);
    EXPECT_EQ(forwards, sum_of({numbers.rbegin(), numbers.rend()})) << "FOVEA_TEST_SEED=" << seed;
    double largest = 0;
    for (const float x : numbers) largest = std::max(largest, std::abs(static_cast<double>(x)));
    long double plain = 0;
    for (const float x : numbers) plain += static_cast<long double>(x);
    EXPECT_LE(std::abs(static_cast<double>(plain - static_cast<long double>(forwards))),
              1e-14 * largest);
  }
}

}  // namespace
}  // namespace fovea::on_host

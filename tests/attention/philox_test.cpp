// The dropout generator is the published one, and its decisions have the asked-for rate.
#include "attention/philox.h"

#include <gtest/gtest.h>

#include <cmath>

namespace {

using fovea::dropout_keeps;
using fovea::dropout_threshold;
using fovea::philox;
using fovea::Philox4;

// Random123's kat_vectors for philox4x32-10. Its key words are low, high of ours.
TEST(Philox, GivesThePublishedNumbers) {
  EXPECT_EQ(philox(0, {0, 0, 0, 0}), (Philox4{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(0xffffffffffffffffu, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}),
            (Philox4{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822u, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (Philox4{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, IsKnownAtCompileTime) {
  static_assert(philox(0, {0, 0, 0, 0})[0] == 0x6627e8d5);
  static_assert(dropout_threshold(0.5f) == 0x80000000u);
}

TEST(Dropout, ReadsTheWordOfItsPosition) {
  const std::uint64_t seed = 0x0123456789abcdefu, offset = 7;
  for (std::uint32_t k = 0; k < 64; ++k) {
    const std::uint32_t word = philox(seed, {k / 4, 9, 5, 7})[k % 4];
    EXPECT_TRUE(dropout_keeps(seed, offset, {k, 9, 5}, word)) << k;
    EXPECT_FALSE(dropout_keeps(seed, offset, {k, 9, 5}, std::uint64_t{word} + 1)) << k;
  }
}

TEST(Dropout, ThresholdIsTheFloorOfTheProbability) {
  EXPECT_EQ(dropout_threshold(0), 0u);
  EXPECT_EQ(dropout_threshold(0.25f), std::uint64_t{1} << 30);
  EXPECT_EQ(dropout_threshold(0.1f), 429496736u);  // 0.1f * 2^32, exactly
  EXPECT_LT(dropout_threshold(std::nextafter(1.0f, 0.0f)), std::uint64_t{1} << 32);
}

TEST(Dropout, OfProbabilityZeroKeepsAll) {
  for (std::uint32_t k = 0; k < 4096; ++k) {
    ASSERT_TRUE(dropout_keeps(1, 0, {k, 3, 2}, dropout_threshold(0))) << k;
  }
}

// Kept fractions along each coordinate: within five standard deviations of 1 - p.
TEST(Dropout, KeepsTheAskedForFraction) {
  constexpr int count = 1 << 18;
  for (const float p : {0.1f, 0.5f, 0.9f}) {
    const std::uint64_t threshold = dropout_threshold(p);
    const double expected = 1 - static_cast<double>(p);
    const double tolerance = 5 * std::sqrt(expected * (1 - expected) / count);
    int along_k = 0, along_q = 0, along_bh = 0, along_offset = 0, along_seed = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      along_k += dropout_keeps(42, 0, {i, 0, 0}, threshold);
      along_q += dropout_keeps(42, 0, {0, i, 0}, threshold);
      along_bh += dropout_keeps(42, 0, {0, 0, i}, threshold);
      along_offset += dropout_keeps(42, i, {0, 0, 0}, threshold);
      along_seed += dropout_keeps(i, 0, {0, 0, 0}, threshold);
    }
    for (const int kept : {along_k, along_q, along_bh, along_offset, along_seed}) {
      EXPECT_NEAR(static_cast<double>(kept) / count, expected, tolerance) << "p=" << p;
    }
  }
}

// Neighbours along every coordinate decide independently: both are kept (1 - p)^2 of the time.
TEST(Dropout, NeighboursAreIndependent) {
  constexpr int side = 512;
  const std::uint64_t threshold = dropout_threshold(0.5f);
  int pairs_k = 0, pairs_q = 0;
  for (std::uint32_t q = 0; q < side; ++q) {
    for (std::uint32_t k = 0; k < side; ++k) {
      const bool here = dropout_keeps(3, 1, {k, q, 0}, threshold);
      pairs_k += here && dropout_keeps(3, 1, {k + 1, q, 0}, threshold);
      pairs_q += here && dropout_keeps(3, 1, {k, q + 1, 0}, threshold);
    }
  }
  const double tolerance = 5 * std::sqrt(0.25 * 0.75 / (side * side)) * 1.5;  // pairs overlap
  EXPECT_NEAR(static_cast<double>(pairs_k) / (side * side), 0.25, tolerance);
  EXPECT_NEAR(static_cast<double>(pairs_q) / (side * side), 0.25, tolerance);
}

}  // namespace

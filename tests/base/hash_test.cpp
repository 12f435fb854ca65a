// The hash is part of canonical texts (it orders operands) and of cache keys: its values are fixed.
#include "base/hash.h"

#include <gtest/gtest.h>

#include <bit>
#include <set>

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

}  // namespace
}  // namespace fovea

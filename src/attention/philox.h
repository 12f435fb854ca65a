// Philox 4x32-10 (Salmon et al., SC'11), and the decision that dropout makes with it: a function of
// seed, offset and position alone, so that every engine and every tiling drops the same scores.
#pragma once

#include <array>
#include <cstdint>

namespace fovea {

using Philox4 = std::array<std::uint32_t, 4>;

constexpr Philox4 philox(std::uint64_t key, Philox4 counter) {
  constexpr std::uint64_t multiplier_0 = 0xd2511f53u, multiplier_1 = 0xcd9e8d57u;
  constexpr std::uint32_t weyl_0 = 0x9e3779b9u, weyl_1 = 0xbb67ae85u;
  auto key_0 = static_cast<std::uint32_t>(key), key_1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product_0 = multiplier_0 * counter[0];
    const std::uint64_t product_1 = multiplier_1 * counter[2];
    counter = {static_cast<std::uint32_t>(product_1 >> 32) ^ counter[1] ^ key_0,
               static_cast<std::uint32_t>(product_1),
               static_cast<std::uint32_t>(product_0 >> 32) ^ counter[3] ^ key_1,
               static_cast<std::uint32_t>(product_0)};
    key_0 += weyl_0;
    key_1 += weyl_1;
  }
  return counter;
}

// Words below this drop their score: floor(p * 2^32).
constexpr std::uint64_t dropout_threshold(float probability) {
  return static_cast<std::uint64_t>(static_cast<double>(probability) * 4294967296.0);
}

// Kept iff the word at (k, q, b * H + h) is at least the threshold, with the coordinates that
// formulas see.
struct DropoutPoint {
  std::uint32_t k = 0, q = 0, bh = 0;
};
constexpr bool dropout_keeps(std::uint64_t seed, std::uint64_t offset, const DropoutPoint& at,
                             std::uint64_t threshold) {
  const Philox4 counter{at.k / 4, at.q, at.bh, static_cast<std::uint32_t>(offset)};
  return philox(seed, counter)[at.k % 4] >= threshold;
}

}  // namespace fovea

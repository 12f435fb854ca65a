// A 64-bit sum over bytes, the same on every machine. Any change within one 8-byte word changes it
// for certain, everything else but for one chance in 2^64. Against damage, not against malice.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/hash.h"

namespace fovea::store {

using Bytes = std::span<const std::uint8_t>;

constexpr std::uint64_t checksum(Bytes bytes, std::uint64_t seed = 0) {
  std::uint64_t sum = hash_combine(seed, bytes.size());
  while (!bytes.empty()) {
    std::uint64_t word = 0;
    const std::size_t count = std::min<std::size_t>(8, bytes.size());
    for (std::size_t i = 0; i < count; ++i) word |= std::uint64_t{bytes[i]} << (8 * i);
    sum = hash_combine(sum, word);
    bytes = bytes.subspan(count);
  }
  return sum;
}

}  // namespace fovea::store

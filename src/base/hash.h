// A 64-bit hash that is the same in every process and on every machine, unlike std::hash: cache
// keys and the order of commutative operands depend on it. Not for hostile inputs: equality is
// always checked in full.
#pragma once

#include <cstdint>
#include <string_view>

namespace fovea {

// The finaliser of splitmix64: every input bit reaches every output bit.
constexpr std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr std::uint64_t hash_combine(std::uint64_t seed, std::uint64_t value) {
  return mix(seed * 0x9e3779b97f4a7c15u + value + 0x632be59bd9b4e019u);
}

constexpr std::uint64_t hash_text(std::uint64_t seed, std::string_view text) {
  seed = hash_combine(seed, text.size());
  for (const char c : text) seed = hash_combine(seed, static_cast<unsigned char>(c));
  return seed;
}

}  // namespace fovea

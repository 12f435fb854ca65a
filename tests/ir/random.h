// Where random tests take their choices from: a seed that every failure prints, or the bytes that
// a fuzzer hands over. FOVEA_TEST_SEED overrides the seed.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>

#include "base/hash.h"

namespace fovea::test {

inline std::uint64_t test_seed() {
  const char* const given = std::getenv("FOVEA_TEST_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 0) : 20260822;
}

// The same, printed: for tests whose failures do not name it.
inline std::uint64_t printed_seed() {
  std::printf("seed %llu\n", static_cast<unsigned long long>(test_seed()));
  return test_seed();
}

// How many cases to try: all of them, or a quarter under sanitizers, which are that much slower.
constexpr std::uint64_t cases(std::uint64_t all) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return all / 4;
#else
  return all;
#endif
}

// splitmix64, which starts at no cost: tests make one for every case.
class Random {
 public:
  // Case `number` of the run with this seed: each case can be repeated alone.
  explicit Random(std::uint64_t seed, std::uint64_t number = 0)
      : state_(hash_combine(seed, number)) {}
  // From a fuzzer. Zeros when the bytes are spent: every first choice is the simplest one.
  explicit Random(std::span<const std::uint8_t> bytes) : bytes_(bytes), from_bytes_(true) {}

  std::uint32_t bits() {
    if (!from_bytes_) return static_cast<std::uint32_t>(mix(state_ += 0x9e3779b97f4a7c15u) >> 32);
    std::uint32_t word = 0;
    for (int i = 0; i < 4; ++i) word = word << 8 | next_byte();
    return word;
  }
  // 0 .. n - 1
  std::uint32_t below(std::uint32_t n) {
    const std::uint32_t word = from_bytes_ && n <= 256 ? next_byte() : bits();
    return word % n;
  }
  std::int32_t between(std::int32_t lo, std::int32_t hi) {
    return lo + static_cast<std::int32_t>(below(static_cast<std::uint32_t>(hi - lo + 1)));
  }
  bool chance(std::uint32_t percent) { return below(100) >= 100 - percent; }
  template <class Container>
  auto pick(const Container& from) {
    return from[below(static_cast<std::uint32_t>(std::size(from)))];
  }
  // Roughly normal, in steps that are exact in float.
  float normal() {
    float sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<float>(below(4097)) / 4096.0f - 0.5f;
    return sum * 1.75f;
  }
  bool spent() const { return from_bytes_ && bytes_.empty(); }

 private:
  std::uint32_t next_byte() {
    if (bytes_.empty()) return 0;
    const std::uint32_t byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte;
  }

  std::uint64_t state_ = 0;
  std::span<const std::uint8_t> bytes_;
  bool from_bytes_ = false;
};

// For failure messages: how to run this case again.
inline std::string seed_text(std::uint64_t seed, std::uint64_t number) {
  return "FOVEA_TEST_SEED=" + std::to_string(seed) + ", case " + std::to_string(number);
}

}  // namespace fovea::test

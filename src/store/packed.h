// Numbers, texts and sums in files: little-endian, written one after the other and read back with
// every bound checked. A read past the end gives zero or an empty text, and ok() is false from
// then.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/hash.h"

namespace fovea::store {

using Bytes = std::span<const std::uint8_t>;

// A 64-bit sum over bytes, the same on every machine. A change within one 8-byte word always
// changes it, any other change does with a probability of 1 - 2^-64. It finds damage, not malice.
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

class Writer {
 public:
  void u32(std::uint32_t value) { number(value, 4); }
  void u64(std::uint64_t value) { number(value, 8); }
  void text(std::string_view text);
  void bytes(Bytes bytes);

  const std::vector<std::uint8_t>& written() const { return bytes_; }
  std::vector<std::uint8_t> take() { return std::move(bytes_); }

 private:
  void number(std::uint64_t value, std::size_t size);
  std::vector<std::uint8_t> bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(Bytes bytes) : left_(bytes) {}

  std::uint32_t u32() { return static_cast<std::uint32_t>(number(4)); }
  std::uint64_t u64() { return number(8); }
  Bytes bytes(std::uint64_t size);
  std::string text(std::uint64_t size);

  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && left_.empty(); }

 private:
  std::uint64_t number(std::size_t size);
  Bytes left_;
  bool ok_ = true;
};

}  // namespace fovea::store

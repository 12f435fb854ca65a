// Numbers and texts in files: little-endian, written one after the other and read back with every
// bound checked. What is read past the end is zero or empty, and ok() says so from then on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/checksum.h"

namespace fovea::store {

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

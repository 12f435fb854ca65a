// The form of keys and blobs in files. Numbers are little-endian; texts and bytes follow their
// sizes. One file of the cache folder is a key with its blob, and a sum over both:
//
//     "FOVEAPLN" | u32 format | u32 bytes of the key | u64 bytes of the blob | u64 sum | key | blob
//
// The sum is over everything but itself. Bundles (store/bundle) have a form of their own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "store/file.h"
#include "store/store.h"

namespace fovea::store {

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

class ByteWriter {
 public:
  void u32(std::uint32_t value) { number(value, 4); }
  void u64(std::uint64_t value) { number(value, 8); }
  void text(std::string_view text) { bytes_.insert(bytes_.end(), text.begin(), text.end()); }
  void bytes(Bytes bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }

  const std::vector<std::uint8_t>& written() const { return bytes_; }
  std::vector<std::uint8_t> take() { return std::move(bytes_); }

 private:
  void number(std::uint64_t value, std::size_t size);
  std::vector<std::uint8_t> bytes_;
};

// Every bound is checked: a read past the end gives zero or an empty text, and ok() is false from
// then on.
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

// Keys and blobs beyond these are built each time and never stored.
constexpr std::uint64_t largest_text = std::uint64_t{1} << 24;
constexpr std::uint64_t largest_blob = std::uint64_t{1} << 28;
constexpr std::uint64_t largest_file = largest_blob + 4 * largest_text;
bool is_small_enough(const Key& key, const Blob& blob);

void put(ByteWriter& out, const Key& key);
std::optional<Key> read_key(ByteReader& in);  // nothing if the bytes are no key

constexpr std::uint32_t entry_format = 1;
constexpr std::size_t entry_header_bytes = 32;

std::vector<std::uint8_t> encode_entry(const Key& key, const Blob& blob);

// What stands before the key. Sizes are bounded and add up to those of a file of `file_bytes`.
struct EntryHeader {
  std::uint64_t key_bytes = 0, blob_bytes = 0, sum = 0;
};
struct Entry {
  Key key;
  Blob blob;
};

// These throw Damaged. A file whose format is another's counts as damaged.
EntryHeader decode_entry_header(Bytes header, std::uint64_t file_bytes);
Entry decode_entry(Bytes file);

}  // namespace fovea::store

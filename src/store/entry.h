// One file of the cache folder: a key with its blob, and a sum over both.
//
//     "FOVEAPLN" | u32 format | u32 bytes of the key | u64 bytes of the blob | u64 sum | key | blob
//
// The sum is over everything but itself. Written and read by disk; nobody else knows the form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "store/key.h"
#include "store/store.h"

namespace fovea::store {

// Its text completes a sentence that begins with the file's name: "is not a file of Fovea". It is
// caught inside the store, where a damaged file counts as missing.
class Damaged : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

constexpr std::uint32_t entry_format = 1;
constexpr std::size_t entry_header_bytes = 32;

std::vector<std::uint8_t> encode_entry(const Key& key, const Blob& blob);

// What stands before the key. Sizes are bounded and add up to those of a file of `file_bytes`.
struct EntryHeader {
  std::uint64_t key_bytes = 0, blob_bytes = 0, sum = 0;
};

// These throw Damaged. A file whose format is another's counts as damaged.
EntryHeader decode_entry_header(Bytes header, std::uint64_t file_bytes);
struct Entry {
  Key key;
  Blob blob;
};
Entry decode_entry(Bytes file);

}  // namespace fovea::store

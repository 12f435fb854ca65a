#include "tests/store/damage_target.h"

#include <algorithm>
#include <vector>

#include "store/bundle.h"
#include "store/entry.h"

namespace fovea::store::testing {
namespace {

using Buffer = std::vector<std::uint8_t>;

void put_u64(Buffer& bytes, std::size_t at, std::uint64_t value) {
  for (std::size_t i = 0; i < 8; ++i) bytes[at + i] = static_cast<std::uint8_t>(value >> (8 * i));
}
std::uint64_t get_u64(const Buffer& bytes, std::size_t at) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < 8; ++i) value |= std::uint64_t{bytes[at + i]} << (8 * i);
  return value;
}

// As a hostile writer would: the file's size and both sums are right, wherever they belong.
void fit_bundle(Buffer& bytes) {
  if (bytes.size() < bundle_header_bytes) return;
  put_u64(bytes, 16, bytes.size());
  const std::uint64_t index = get_u64(bytes, 24);
  if (index <= bytes.size()) put_u64(bytes, 40, checksum(Bytes(bytes).subspan(index)));
  put_u64(bytes, 48, checksum(Bytes(bytes).first(48)));
}

void fit_entry(Buffer& bytes) {
  if (bytes.size() < entry_header_bytes) return;
  const Bytes all(bytes);
  put_u64(bytes, 24, checksum(all.subspan(entry_header_bytes), checksum(all.first(24))));
}

std::string read_bundle(const Buffer& bytes, bool& accepted) {
  BundleHeader header;
  BundleIndex index;
  try {
    header = decode_bundle_header(Bytes(bytes).first(std::min(bytes.size(), bundle_header_bytes)),
                                  bytes.size());
    index = decode_bundle_index(Bytes(bytes).subspan(header.index_offset), header);
  } catch (const Damaged&) {
    return "";
  }
  accepted = true;
  if (index.entries.size() != header.entries) return "a bundle with entries that nobody counted";
  std::uint64_t sum = 0;
  for (const BundleEntry& entry : index.entries) {
    sum ^= checksum(Bytes(bytes).subspan(entry.offset, entry.bytes));  // in bounds, or it is found
  }
  const Buffer again = encode(index);
  const Bytes there = Bytes(bytes).subspan(header.index_offset);
  if (!std::ranges::equal(again, there))
    return "an index that is written otherwise than it is read";
  return sum == 0x5eed ? "unlikely" : "";
}

std::string read_entry(const Buffer& bytes, bool& accepted) {
  Entry entry;
  try {
    entry = decode_entry(bytes);
  } catch (const Damaged&) {
    return "";
  }
  accepted = true;
  return encode_entry(entry.key, entry.blob) == bytes
             ? ""
             : "a file that is written otherwise than it is read";
}

}  // namespace

DamageOutcome damage_target(Bytes input, bool fit_sums) {
  DamageOutcome out;
  Buffer bundle(input.begin(), input.end()), entry = bundle;
  if (fit_sums) {
    fit_bundle(bundle);
    fit_entry(entry);
  }
  out.failure = read_bundle(bundle, out.accepted);
  if (out.failure.empty()) out.failure = read_entry(entry, out.accepted);
  return out;
}

}  // namespace fovea::store::testing

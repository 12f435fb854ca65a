#include "store/entry.h"

#include <string_view>

namespace fovea::store {
namespace {

constexpr std::string_view entry_magic = "FOVEAPLN";
constexpr std::size_t summed_header_bytes = entry_header_bytes - 8;

std::uint64_t sum_of(Bytes header, Bytes rest) {
  return checksum(rest, checksum(header.first(summed_header_bytes)));
}

}  // namespace

std::vector<std::uint8_t> encode_entry(const Key& key, const Blob& blob) {
  Writer rest;
  put(rest, key);
  const std::uint64_t key_bytes = rest.written().size();
  rest.bytes(blob);
  Writer out;
  out.text(entry_magic);
  out.u32(entry_format);
  out.u32(static_cast<std::uint32_t>(key_bytes));
  out.u64(blob.size());
  out.u64(checksum(rest.written(), checksum(out.written())));
  out.bytes(rest.written());
  return out.take();
}

EntryHeader decode_entry_header(Bytes header, std::uint64_t file_bytes) {
  ByteReader in(header);
  if (in.text(entry_magic.size()) != entry_magic) throw Damaged("is not a file of Fovea");
  const std::uint32_t format = in.u32();
  EntryHeader out;
  out.key_bytes = in.u32();
  out.blob_bytes = in.u64();
  out.sum = in.u64();
  if (!in.ok()) throw Damaged("is cut short");
  if (format != entry_format) throw Damaged("has format " + std::to_string(format));
  const bool bounded = out.key_bytes <= 4 * largest_text && out.blob_bytes <= largest_blob;
  if (!bounded || file_bytes != entry_header_bytes + out.key_bytes + out.blob_bytes) {
    throw Damaged("has " + std::to_string(file_bytes) + " bytes, not what it says");
  }
  return out;
}

Entry decode_entry(Bytes file) {
  const EntryHeader header = decode_entry_header(file, file.size());
  const Bytes rest = file.subspan(entry_header_bytes);
  if (sum_of(file, rest) != header.sum) throw Damaged("has a wrong sum");
  ByteReader in(rest.first(static_cast<std::size_t>(header.key_bytes)));
  const std::optional<Key> key = read_key(in);
  if (!key || !in.at_end()) throw Damaged("has a key that cannot be read");
  const Bytes blob = rest.subspan(static_cast<std::size_t>(header.key_bytes));
  return {*key, Blob(blob.begin(), blob.end())};
}

}  // namespace fovea::store

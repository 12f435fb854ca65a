#include "store/entry.h"

#include <array>
#include <cstdio>
#include <string_view>

namespace fovea::store {

void ByteWriter::number(std::uint64_t value, std::size_t size) {
  std::array<std::uint8_t, 8> little{};
  for (std::size_t i = 0; i < size; ++i) little[i] = static_cast<std::uint8_t>(value >> (8 * i));
  bytes(Bytes(little).first(size));
}

Bytes ByteReader::bytes(std::uint64_t size) {
  if (size > left_.size()) {
    ok_ = false;
    left_ = {};
    return {};
  }
  const Bytes out = left_.first(static_cast<std::size_t>(size));
  left_ = left_.subspan(out.size());
  return out;
}

std::string ByteReader::text(std::uint64_t size) {
  const Bytes out = bytes(size);
  return {out.begin(), out.end()};
}

std::uint64_t ByteReader::number(std::size_t size) {
  std::uint64_t value = 0;
  const Bytes read = bytes(size);
  for (std::size_t i = 0; i < read.size(); ++i) value |= std::uint64_t{read[i]} << (8 * i);
  return value;
}

namespace {

constexpr std::string_view entry_magic = "FOVEAPLN";
constexpr std::size_t summed_header_bytes = entry_header_bytes - 8;

std::uint64_t sum_of(Bytes header, Bytes rest) {
  return checksum(rest, checksum(header.first(summed_header_bytes)));
}

}  // namespace

std::vector<std::uint8_t> encode_entry(const Key& key, const Blob& blob) {
  ByteWriter rest;
  put(rest, key);
  const std::uint64_t key_bytes = rest.written().size();
  rest.bytes(blob);
  ByteWriter out;
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

std::string name_of(const Key& key) {
  ByteWriter out;
  put(out, key);
  // Another form of the files has other names: two versions of Fovea can share a folder.
  const std::uint64_t first = checksum(out.written(), entry_format);
  const std::uint64_t second = checksum(out.written(), first);
  char digits[33];
  std::snprintf(digits, sizeof digits, "%016llx%016llx", static_cast<unsigned long long>(first),
                static_cast<unsigned long long>(second));
  return digits;
}

std::string summary_of(const Key& key) { return key.content.substr(0, key.content.find('\n')); }

bool is_small_enough(const Key& key, const Blob& blob) {
  return key.engine.size() <= largest_text && key.environment.size() <= largest_text &&
         key.content.size() <= largest_text && blob.size() <= largest_blob;
}

void put(ByteWriter& out, const Key& key) {
  for (const std::string* text : {&key.engine, &key.environment, &key.content}) {
    out.u32(static_cast<std::uint32_t>(text->size()));
  }
  for (const std::string* text : {&key.engine, &key.environment, &key.content}) out.text(*text);
}

std::optional<Key> read_key(ByteReader& in) {
  const std::uint32_t sizes[] = {in.u32(), in.u32(), in.u32()};  // in this order: braces promise it
  Key key;
  key.engine = in.text(sizes[0]);
  key.environment = in.text(sizes[1]);
  key.content = in.text(sizes[2]);
  if (!in.ok()) return std::nullopt;
  return key;
}

}  // namespace fovea::store

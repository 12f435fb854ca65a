#include "store/listing.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "store/entry.h"

namespace fovea::store {
namespace {

struct OpenListing {
  OpenFolder folder;
  Listing listing;  // no files yet
};

OpenListing open_listing(const Disk& disk) {
  OpenListing out;
  if (!disk.is_on()) {
    out.listing.why = disk.choice().why_none;
    return out;
  }
  out.folder = open_folder(disk.choice().path);
  if (!out.folder) {
    out.listing.missing = out.folder.why.empty();
    out.listing.why = out.listing.missing ? "is not there yet" : out.folder.why;
    return out;
  }
  out.listing.usable = true;
  out.listing.writable = ::faccessat(out.folder.folder.get(), ".", W_OK | X_OK, 0) == 0;
  if (!out.listing.writable) out.listing.why = "cannot be written to: " + errno_text(errno);
  return out;
}

std::vector<std::uint8_t> read_or_throw(const OpenFile& file, std::uint64_t size) {
  auto bytes = read_at(file.file, 0, std::min(size, file.bytes));
  if (!bytes) throw Damaged("cannot be read");
  return std::move(*bytes);
}

Key read_key_of(const OpenFile& file) {
  const EntryHeader header =
      decode_entry_header(read_or_throw(file, entry_header_bytes), file.bytes);
  const auto bytes = read_or_throw(file, entry_header_bytes + header.key_bytes);
  ByteReader in(Bytes(bytes).subspan(entry_header_bytes));
  std::optional<Key> key = read_key(in);
  if (!key) throw Damaged("has a key that cannot be read");
  return std::move(*key);
}

Listed look_at(const File& folder, StoredFile stored, bool verify) {
  Listed out{std::move(stored), {}, ""};
  try {
    const auto file = open_to_read(folder, out.file.name);
    if (!file) throw Damaged("cannot be opened: " + errno_text(errno));
    if (file->bytes > largest_blob + 4 * largest_text) throw Damaged("is too large");
    out.key = verify ? decode_entry(read_or_throw(*file, file->bytes)).key : read_key_of(*file);
    if (name_of(out.key) + blob_suffix != out.file.name) throw Damaged("has another's name");
  } catch (const Damaged& damage) {
    out.damage = damage.what();
  }
  return out;
}

}  // namespace

Listing summarise(const Disk& disk) {
  auto [folder, listing] = open_listing(disk);
  if (!folder) return listing;
  for (StoredFile& file : stored_files(folder.folder)) {
    listing.bytes += file.bytes;
    listing.files.push_back({std::move(file), {}, ""});
  }
  return std::move(listing);
}

Listing list(const Disk& disk, bool verify) {
  Listing listing = summarise(disk);
  const OpenFolder folder = open_folder(disk.choice().path);
  if (!disk.is_on() || !folder) return listing;
  for (Listed& one : listing.files) {
    one = look_at(folder.folder, std::move(one.file), verify);
  }
  return listing;
}

Removed clear(const Disk& disk) {
  Removed out;
  if (!disk.is_on()) return out;
  const OpenFolder folder = open_folder(disk.choice().path);
  if (!folder) return out;
  for (const StoredFile& file : remove_all(folder.folder)) {
    ++out.files;
    out.bytes += file.bytes;
  }
  return out;
}

}  // namespace fovea::store

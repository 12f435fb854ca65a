#include "store/bundle.h"

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "store/entry.h"

namespace fovea::store {
namespace {

std::uint64_t hash_of(const Key& key) {
  std::uint64_t hash = 0;
  for (const std::string* text : {&key.engine, &key.environment, &key.content}) {
    hash = checksum({reinterpret_cast<const std::uint8_t*>(text->data()), text->size()}, hash);
  }
  return hash;
}

std::vector<std::uint8_t> read_or_throw(const File& file, std::uint64_t offset,
                                        std::uint64_t size) {
  auto bytes = read_at(file, offset, size);
  if (!bytes) throw Damaged("cannot be read: " + errno_text(errno));
  return std::move(*bytes);
}

}  // namespace

Bundle Bundle::open(const std::string& path) {
  auto there = open_to_read(path);
  if (!there) throw InvalidArgument(path + ": cannot be opened: " + errno_text(errno));
  Bundle out;
  out.path_ = path;
  out.file_ = std::move(there->file);
  out.file_bytes_ = there->bytes;
  try {
    const std::uint64_t header_bytes = std::min<std::uint64_t>(there->bytes, bundle_header_bytes);
    const BundleHeader header =
        decode_bundle_header(read_or_throw(out.file_, 0, header_bytes), there->bytes);
    const std::uint64_t index_bytes = there->bytes - header.index_offset;
    out.index_ =
        decode_bundle_index(read_or_throw(out.file_, header.index_offset, index_bytes), header);
    out.arrange();
  } catch (const Damaged& damage) {
    throw InvalidArgument(path + ": " + damage.what());
  }
  return out;
}

void Bundle::arrange() {
  for (std::size_t i = 0; i < index_.entries.size(); ++i) {
    const Key& key = index_.entries[i].key;
    const auto same = [&](const Section& section) {
      return section.engine == key.engine && section.environment == key.environment;
    };
    auto section = std::ranges::find_if(sections_, same);
    if (section == sections_.end()) {
      // A few: one per engine and architecture. More would be a file made to keep us busy.
      if (sections_.size() == 64) throw Damaged("is damaged: it has too many environments");
      section = sections_.insert(sections_.end(), {key.engine, key.environment, 0});
    }
    ++section->entries;
    by_hash_.emplace(hash_of(key), i);
  }
}

std::optional<Blob> Bundle::find(const Key& key) const {
  const auto [first, last] = by_hash_.equal_range(hash_of(key));
  for (auto at = first; at != last; ++at) {
    const BundleEntry& entry = index_.entries[at->second];
    if (entry.key == key) return read(entry);
  }
  return std::nullopt;
}

Blob Bundle::read(const BundleEntry& entry) const {
  Blob blob = read_or_throw(file_, entry.offset, entry.bytes);
  if (checksum(blob) != entry.sum) throw Damaged("has a plan with a wrong sum");
  return blob;
}

}  // namespace fovea::store

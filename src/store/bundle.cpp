#include "store/bundle.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

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

}  // namespace

Bundle Bundle::open(const std::string& path) {
  auto there = open_to_read(path);
  if (!there) throw InvalidArgument(path + ": cannot be opened: " + errno_text(errno));
  Bundle out;
  out.path_ = path;
  out.file_ = std::move(there->file);
  try {
    const std::uint64_t header_bytes = std::min<std::uint64_t>(there->bytes, bundle_header_bytes);
    const BundleHeader header =
        decode_bundle_header(read_at(out.file_, 0, header_bytes), there->bytes);
    const std::uint64_t index_bytes = there->bytes - header.index_offset;
    out.index_ = decode_bundle_index(read_at(out.file_, header.index_offset, index_bytes), header);
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
  Blob blob = read_at(file_, entry.offset, entry.bytes);
  if (checksum(blob) != entry.sum) throw Damaged("has a plan with a wrong sum");
  return blob;
}

namespace {

constexpr std::string_view bundle_magic = "FOVEABND";
constexpr std::uint64_t smallest_entry = 3 * 8 + 3 * 4;  // with three empty texts
constexpr std::uint64_t largest_index = std::uint64_t{1} << 28;

// Blobs lie between the header and the index.
bool lies_within(const BundleEntry& entry, const BundleHeader& header) {
  return entry.offset >= bundle_header_bytes && entry.offset <= header.index_offset &&
         entry.bytes <= header.index_offset - entry.offset && entry.bytes <= largest_blob;
}

}  // namespace

std::vector<std::uint8_t> encode(const BundleHeader& header) {
  ByteWriter out;
  out.text(bundle_magic);
  out.u32(bundle_format);
  out.u32(0);
  out.u64(header.file_bytes);
  out.u64(header.index_offset);
  out.u64(header.entries);
  out.u64(header.index_sum);
  out.u64(checksum(out.written()));
  return out.take();
}

std::vector<std::uint8_t> encode(const BundleIndex& index) {
  ByteWriter out;
  out.u32(static_cast<std::uint32_t>(index.made_by.size()));
  out.text(index.made_by);
  for (const BundleEntry& entry : index.entries) {
    out.u64(entry.offset);
    out.u64(entry.bytes);
    out.u64(entry.sum);
    put(out, entry.key);
  }
  return out.take();
}

BundleHeader decode_bundle_header(Bytes bytes, std::uint64_t file_bytes) {
  ByteReader in(bytes);
  if (in.text(bundle_magic.size()) != bundle_magic) throw Damaged("is not a bundle of Fovea");
  // Before the sum: another format may have another header.
  const std::uint32_t format = in.u32();
  if (in.ok() && format != bundle_format) {
    throw Damaged("has format " + std::to_string(format) + "; this Fovea reads format " +
                  std::to_string(bundle_format) + ": compile it again");
  }
  in.u32();
  BundleHeader out;
  out.file_bytes = in.u64();
  out.index_offset = in.u64();
  out.entries = in.u64();
  out.index_sum = in.u64();
  const std::uint64_t sum = in.u64();
  if (!in.ok()) throw Damaged("is cut short");
  if (sum != checksum(bytes.first(bundle_header_bytes - 8))) {
    throw Damaged("is damaged: its header has a wrong sum");
  }
  if (out.file_bytes != file_bytes) {
    throw Damaged("is damaged: it has " + std::to_string(file_bytes) + " bytes, not " +
                  std::to_string(out.file_bytes));
  }
  const bool inside = out.index_offset >= bundle_header_bytes && out.index_offset <= file_bytes &&
                      file_bytes - out.index_offset <= largest_index;
  if (!inside || out.entries > (file_bytes - out.index_offset) / smallest_entry) {
    throw Damaged("is damaged: its index cannot lie where the header says");
  }
  return out;
}

BundleIndex decode_bundle_index(Bytes bytes, const BundleHeader& header) {
  if (checksum(bytes) != header.index_sum) throw Damaged("is damaged: its index has a wrong sum");
  ByteReader in(bytes);
  BundleIndex out;
  out.made_by = in.text(in.u32());
  for (std::uint64_t i = 0; i < header.entries && in.ok(); ++i) {
    BundleEntry entry;
    entry.offset = in.u64();
    entry.bytes = in.u64();
    entry.sum = in.u64();
    std::optional<Key> key = read_key(in);
    if (!key) break;
    entry.key = std::move(*key);
    if (!lies_within(entry, header)) {
      throw Damaged("is damaged: entry " + std::to_string(i) + " lies outside the file");
    }
    out.entries.push_back(std::move(entry));
  }
  if (!in.at_end() || out.entries.size() != header.entries) {
    throw Damaged("is damaged: its index cannot be read");
  }
  return out;
}

namespace {

// Beside the file itself: a rename must not leave the disk.
std::string temporary_beside(const std::string& path) {
  return path.substr(0, path.rfind('/') + 1) + temporary_name();
}

[[noreturn]] void refuse(const std::string& path, int error) {
  throw InvalidArgument(path + ": cannot be written: " + errno_text(error));
}

}  // namespace

BundleWriter::BundleWriter(const std::string& path)
    : path_(path), temporary_(temporary_beside(path)) {
  struct stat about{};
  if (::stat(path.c_str(), &about) == 0 && !S_ISREG(about.st_mode)) {
    refuse(path, S_ISDIR(about.st_mode) ? EISDIR : EEXIST);
  }
  // As other files of the user: bundles are for others too, unlike the cache.
  file_ = File(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file_) refuse(path, errno);
}

BundleWriter::~BundleWriter() {
  if (file_) ::unlink(temporary_.c_str());
}

void BundleWriter::write(Bytes bytes) {
  if (!file_) throw InvalidArgument(path_ + ": is written already");
  if (const int error = write_at(file_, end_, bytes); error != 0) refuse(path_, error);
  end_ += bytes.size();
}

bool BundleWriter::add(const Key& key, const Blob& blob) {
  if (!is_small_enough(key, blob)) {
    throw InvalidArgument(path_ + ": a plan of " + std::to_string(blob.size()) +
                          " bytes is too large for a bundle");
  }
  if (!names_.insert(name_of(key)).second) return false;
  const std::uint64_t offset = end_;
  write(blob);
  index_.entries.push_back({key, offset, blob.size(), checksum(blob)});
  return true;
}

void BundleWriter::add(const Bundle& other) {
  for (const BundleEntry& entry : other.index().entries) {
    try {
      add(entry.key, other.read(entry));
    } catch (const Damaged& damage) {
      throw InvalidArgument(other.path() + ": " + damage.what());
    }
  }
}

void BundleWriter::finish(const std::string& made_by) {
  index_.made_by = made_by;
  const std::vector<std::uint8_t> index = encode(index_);
  const std::uint64_t index_offset = end_;
  write(index);
  const BundleHeader header{end_, index_offset, index_.entries.size(), checksum(index)};
  if (const int error = write_at(file_, 0, encode(header)); error != 0) refuse(path_, error);
  if (::fsync(file_.get()) != 0) refuse(path_, errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) refuse(path_, errno);
  file_ = File();
}

}  // namespace fovea::store

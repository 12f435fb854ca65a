#include "store/disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "store/entry.h"
#include "store/folder.h"

namespace fovea::store {
namespace {

std::string file_of(const Key& key) { return name_of(key) + blob_suffix; }

}  // namespace

Disk::Disk(FolderChoice folder, std::uint64_t limit) : choice_(std::move(folder)), limit_(limit) {}

void Disk::say_once(const std::string& line) {
  said_.say("# cache folder " + choice_.path + " " + line);
}

std::optional<Blob> Disk::load(const Key& key) {
  if (!is_on()) return std::nullopt;
  const OpenFolder folder = open_folder(choice_.path);
  if (!folder && !folder.why.empty()) say_once(folder.why + ": not used");
  if (!folder) return std::nullopt;
  const std::string name = file_of(key);
  const auto there = open_to_read(folder.folder, name);
  if (!there) return std::nullopt;
  try {
    if (there->bytes > largest_file) throw Damaged("is too large");
    Entry entry = decode_entry(read_at(there->file, 0, there->bytes));
    if (entry.key != key) return std::nullopt;  // the same hash: to be overwritten
    ::futimens(there->file.get(), nullptr);     // used now; fails if the disk is read-only
    return std::move(entry.blob);
  } catch (const Damaged& damage) {
    say_once("has a file " + name + " that " + damage.what() + ": removed");
    ::unlinkat(folder.folder.get(), name.c_str(), 0);
    return std::nullopt;
  }
}

// Under another name first: nobody sees half a file.
bool Disk::write(const File& folder, const std::string& name, Bytes bytes) {
  const std::string temporary = temporary_name();
  int error = 0;
  {
    constexpr int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    const File file(::openat(folder.get(), temporary.c_str(), flags, S_IRUSR | S_IWUSR));
    if (!file) {
      say_once("cannot be written to: " + errno_text(errno));
      return false;
    }
    error = write_at(file, 0, bytes);
  }
  if (error == 0 && ::renameat(folder.get(), temporary.c_str(), folder.get(), name.c_str()) != 0) {
    error = errno;
  }
  if (error == 0) return true;
  ::unlinkat(folder.get(), temporary.c_str(), 0);
  say_once("cannot be written to: " + errno_text(error));
  return false;
}

bool Disk::save(const Key& key, const Blob& blob) {
  if (!is_on() || !is_small_enough(key, blob)) return false;
  const std::vector<std::uint8_t> bytes = encode_entry(key, blob);
  if (bytes.size() > limit_) {
    say_once("is bounded to " + std::to_string(limit_) + " bytes, fewer than one plan has");
    return false;
  }
  const OpenFolder folder = make_folder(choice_.path);
  if (!folder) {
    say_once(folder.why + ": not used");
    return false;
  }
  const std::string name = file_of(key);
  if (!write(folder.folder, name, bytes)) return false;
  sweep(folder.folder, limit_, name);
  return true;
}

void Disk::remove(const Key& key) {
  if (!is_on()) return;
  const OpenFolder folder = open_folder(choice_.path);
  if (folder) ::unlinkat(folder.folder.get(), file_of(key).c_str(), 0);
}

std::unique_ptr<BuildLock> Disk::lock(const Key& key, std::chrono::milliseconds patience) {
  if (!is_on()) return nullptr;
  OpenFolder folder = make_folder(choice_.path);
  if (!folder) return nullptr;
  auto lock = std::make_unique<BuildLock>(std::move(folder.folder), name_of(key), patience);
  if (lock->ran_out_of_patience()) {
    say_once("has a plan that another process is building for too long: built here as well");
  }
  return lock;
}

namespace {

std::vector<std::uint8_t> beginning(const OpenFile& file, std::uint64_t size) {
  return read_at(file.file, 0, std::min(size, file.bytes));
}

Key read_key_of(const OpenFile& file) {
  const EntryHeader header = decode_entry_header(beginning(file, entry_header_bytes), file.bytes);
  const auto bytes = beginning(file, entry_header_bytes + header.key_bytes);
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
    if (file->bytes > largest_file) throw Damaged("is too large");
    out.key = verify ? decode_entry(beginning(*file, file->bytes)).key : read_key_of(*file);
    if (name_of(out.key) + blob_suffix != out.file.name) throw Damaged("has another's name");
  } catch (const Damaged& damage) {
    out.damage = damage.what();
  }
  return out;
}

enum class Depth : std::uint8_t { Names, Keys, Everything };

Listing listing_of(const Disk& disk, Depth depth) {
  Listing out;
  if (!disk.is_on()) {
    out.why = disk.choice().why_none;
    return out;
  }
  const OpenFolder folder = open_folder(disk.choice().path);
  if (!folder) {
    out.missing = folder.why.empty();
    out.why = out.missing ? "is not there yet" : folder.why;
    return out;
  }
  out.usable = true;
  out.writable = ::faccessat(folder.folder.get(), ".", W_OK | X_OK, 0) == 0;
  if (!out.writable) out.why = "cannot be written to: " + errno_text(errno);
  for (StoredFile& file : stored_files(folder.folder)) {
    out.bytes += file.bytes;
    out.files.push_back(depth == Depth::Names
                            ? Listed{std::move(file), {}, ""}
                            : look_at(folder.folder, std::move(file), depth == Depth::Everything));
  }
  return out;
}

}  // namespace

Listing list(const Disk& disk, bool verify) {
  return listing_of(disk, verify ? Depth::Everything : Depth::Keys);
}

Listing summarise(const Disk& disk) { return listing_of(disk, Depth::Names); }

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

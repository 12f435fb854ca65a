#include "store/disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/log.h"
#include "store/entry.h"
#include "store/sweep.h"

namespace fovea::store {
namespace {

std::string file_of(const Key& key) { return name_of(key) + blob_suffix; }

bool is_small_enough(const Key& key, const Blob& blob) {
  return key.engine.size() <= largest_text && key.environment.size() <= largest_text &&
         key.content.size() <= largest_text && blob.size() <= largest_blob;
}

}  // namespace

Disk::Disk(FolderChoice folder, std::uint64_t limit) : choice_(std::move(folder)), limit_(limit) {}

void Disk::say_once(const std::string& line) {
  if (!log_enabled()) return;
  {
    const std::lock_guard lock(mutex_);
    if (said_.size() >= 64 || !said_.insert(line).second) return;
  }
  log_line("# cache folder " + choice_.path + " " + line);
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
    if (there->bytes > largest_blob + 4 * largest_text) throw Damaged("is too large");
    const auto bytes = read_at(there->file, 0, there->bytes);
    if (!bytes) throw Damaged("cannot be read");
    Entry entry = decode_entry(*bytes);
    if (entry.key != key) return std::nullopt;  // the same hash: to be overwritten
    ::futimens(there->file.get(), nullptr);     // used now; fails where the disk is read-only
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
    error = write_all(file, bytes);
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

}  // namespace fovea::store

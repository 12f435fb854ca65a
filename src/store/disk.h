// The user's cache folder: one file per key, named by its hash, seen only when it is whole, bounded
// in bytes. Nothing here throws for a fault of the disk: what cannot be read is not there, what
// cannot be written is not kept, and a line in the log says why, once. Safe from many threads and
// processes.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "store/folder.h"
#include "store/lock.h"
#include "store/store.h"

namespace fovea::store {

constexpr const char* blob_suffix = ".plan";

class Disk {
 public:
  // `folder` empty: there is none.
  Disk(FolderChoice folder, std::uint64_t limit);

  const FolderChoice& choice() const { return choice_; }
  std::uint64_t limit() const { return limit_; }
  bool is_on() const { return !choice_.path.empty(); }

  // Counts as used. A file that is damaged is removed.
  std::optional<Blob> load(const Key& key);
  // Replaces what is there, then lets the files go that were not used for longest until the rest is
  // within the limit. False: not kept.
  bool save(const Key& key, const Blob& blob);
  void remove(const Key& key);

  // Null if there is no folder to lock in.
  std::unique_ptr<BuildLock> lock(const Key& key, std::chrono::milliseconds patience);

 private:
  bool write(const File& folder, const std::string& name, Bytes bytes);
  void say_once(const std::string& line);

  FolderChoice choice_;
  std::uint64_t limit_;
  std::mutex mutex_;
  std::set<std::string> said_;  // a few: what can go wrong with one folder
};

}  // namespace fovea::store

// The user's cache folder: one file per key, named by its hash, visible only when it is complete,
// bounded in bytes. Nothing here throws for a disk fault: what cannot be read counts as missing,
// what cannot be written is not kept, and the log says why, once. Safe from many threads and
// processes.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "store/folder.h"
#include "store/store.h"

namespace fovea::store {

class Disk {
 public:
  // An empty path means that there is no folder.
  Disk(FolderChoice folder, std::uint64_t limit);

  const FolderChoice& choice() const { return choice_; }
  std::uint64_t limit() const { return limit_; }
  bool is_on() const { return !choice_.path.empty(); }

  // Marks the file as used. A file that is damaged is removed.
  std::optional<Blob> load(const Key& key);
  // Replaces what is there, then removes the least recently used files until the rest is within the
  // limit. False if the blob was not kept.
  bool save(const Key& key, const Blob& blob);
  void remove(const Key& key);

  // Null if there is no folder to lock in.
  std::unique_ptr<BuildLock> lock(const Key& key, std::chrono::milliseconds patience);

 private:
  bool write(const File& folder, const std::string& name, Bytes bytes);
  void say_once(const std::string& line);

  FolderChoice choice_;
  std::uint64_t limit_;
  LogOnce said_;
};

// What is in the cache folder, as `fovea cache` and `fovea doctor` print it.
struct Listed {
  StoredFile file;
  Key key;             // empty if it could not be read
  std::string damage;  // "has a wrong sum"; empty: none seen
};

struct Listing {
  bool usable = false;    // plans are read from it
  bool writable = false;  // and written to it
  bool missing = false;   // there is no folder yet: it is made when a plan is kept
  std::string why;        // if one of these is false
  std::uint64_t bytes = 0;
  std::vector<Listed> files;  // last used first
};

// Reads the keys; with `verify` all of each file, checked in full.
Listing list(const Disk& disk, bool verify);

// The same without opening a file.
Listing summarise(const Disk& disk);

// Removes every blob.
struct Removed {
  std::uint64_t files = 0, bytes = 0;
};
Removed clear(const Disk& disk);

}  // namespace fovea::store

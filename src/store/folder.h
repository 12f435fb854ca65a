// The folder that blobs are kept in: which one it is, locks in it, and what is removed when it is
// full. Blobs become code that a GPU runs, so the folder is used only if it belongs to this user
// and nobody else can write to it. It is opened for each use, since it may be removed and created
// again during the life of a process.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "store/file.h"

namespace fovea::store {

// Which folder the environment asks for: FOVEA_CACHE_DIR, else the user's cache folder.
struct FolderChoice {
  std::string path;      // empty: none
  std::string why_none;  // "FOVEA_CACHE_DIR is off"
};
FolderChoice choose_folder();

struct OpenFolder {
  File folder;      // none if it cannot be used
  std::string why;  // then: "belongs to another user"; empty if it is only not there yet
  explicit operator bool() const { return static_cast<bool>(folder); }
};

// Opens a folder that is there; `make_folder` also makes it, with its parents, for this user alone.
OpenFolder open_folder(const std::string& path);
OpenFolder make_folder(const std::string& path);

constexpr const char* blob_suffix = ".plan";
constexpr const char* lock_suffix = ".lock";

// One builder per key among processes: an exclusive lock on a small file beside the blob. The
// system releases it when its holder dies. If locks do not work (some network disks, a folder that
// cannot be written to) or the holder is stuck, nothing is held, and the caller builds without.
class BuildLock {
 public:
  // Waits for it, at most for `patience`.
  BuildLock(File folder, const std::string& name, std::chrono::milliseconds patience);
  ~BuildLock();
  BuildLock(const BuildLock&) = delete;
  BuildLock& operator=(const BuildLock&) = delete;

  bool ran_out_of_patience() const { return impatient_; }

 private:
  bool impatient_ = false;
  File folder_, file_;
  std::string name_;
};

// A blob in the folder. Files whose names are not of our own form are neither counted nor removed.
struct StoredFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::int64_t used = 0;  // nanoseconds since 1970
  bool operator==(const StoredFile&) const = default;
};

// The blobs, last used first.
std::vector<StoredFile> stored_files(const File& folder);

// Removes blobs, least recently used first, until the rest has at most `limit` bytes; never `keep`.
// Then removes what builders left behind that died more than an hour ago.
void sweep(const File& folder, std::uint64_t limit, const std::string& keep);

// Removes every blob and returns what was removed.
std::vector<StoredFile> remove_all(const File& folder);

}  // namespace fovea::store

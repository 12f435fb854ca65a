// One builder per key among processes: an exclusive lock on a small file beside the blob. The
// system lets go of it when its holder dies. Where locks do not work (some network disks, a folder
// that cannot be written to), or the holder is stuck, there is none, and whoever asked builds
// without.
#pragma once

#include <chrono>
#include <string>

#include "store/file.h"

namespace fovea::store {

constexpr const char* lock_suffix = ".lock";

class BuildLock {
 public:
  // Waits for it, at most for `patience`.
  BuildLock(File folder, const std::string& name, std::chrono::milliseconds patience);
  ~BuildLock();
  BuildLock(const BuildLock&) = delete;
  BuildLock& operator=(const BuildLock&) = delete;

  bool held() const { return static_cast<bool>(file_); }
  bool ran_out_of_patience() const { return impatient_; }

 private:
  bool impatient_ = false;
  File folder_, file_;
  std::string name_;
};

// Removes the file of a lock whose holder died, unless someone holds it.
void remove_dead_lock(const File& folder, const std::string& name);

}  // namespace fovea::store

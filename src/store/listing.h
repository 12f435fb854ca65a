// What is in the cache folder, for people: `fovea cache` and the doctor.
#pragma once

#include <string>
#include <vector>

#include "store/disk.h"
#include "store/sweep.h"

namespace fovea::store {

struct Listed {
  StoredFile file;
  Key key;             // empty where it could not be read
  std::string damage;  // "has a wrong sum"; empty: none seen
};

struct Listing {
  bool usable = false;    // plans are read from it
  bool writable = false;  // and written to it
  bool missing = false;   // there is no folder yet: it is made when a plan is kept
  std::string why;        // where one of them is not
  std::uint64_t bytes = 0;
  std::vector<Listed> files;  // last used first
};

// Reads the keys; `verify`: all of each file, checked in full.
Listing list(const Disk& disk, bool verify);

// The same without opening a file.
Listing summarise(const Disk& disk);

// Removes every blob.
struct Removed {
  std::uint64_t files = 0, bytes = 0;
};
Removed clear(const Disk& disk);

}  // namespace fovea::store

// What is in the cache folder, and keeping it within its bound. Looks at names of our own form
// only: whatever else lies in the folder is neither counted nor removed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "store/file.h"

namespace fovea::store {

struct StoredFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::int64_t used = 0;  // nanoseconds since 1970
  bool operator==(const StoredFile&) const = default;
};

// The blobs, last used first.
std::vector<StoredFile> stored_files(const File& folder);

// Removes blobs, those not used for longest first, until the rest has at most `limit` bytes; never
// `keep`. Then what builders left that died more than an hour ago.
void sweep(const File& folder, std::uint64_t limit, const std::string& keep);

// Everything of ours. What it removed.
std::vector<StoredFile> remove_all(const File& folder);

}  // namespace fovea::store

// Writes a bundle: blobs go to the file as they come, the index last; nothing is seen under the
// bundle's name before it is whole. Faults of the disk throw InvalidArgument: here the file is what
// was asked for. Not for several threads at once.
#pragma once

#include <string>
#include <unordered_set>

#include "store/bundle.h"

namespace fovea::store {

class BundleWriter {
 public:
  explicit BundleWriter(const std::string& path);
  ~BundleWriter();  // without finish(): leaves nothing behind
  BundleWriter(const BundleWriter&) = delete;
  BundleWriter& operator=(const BundleWriter&) = delete;

  // False: there is one of this key already.
  bool add(const Key& key, const Blob& blob);
  void add(const Bundle& other);  // all of it; throws InvalidArgument where a blob is damaged

  // Replaces the file of that name, if there is one. `made_by`: "fovea 0.1.0".
  void finish(const std::string& made_by);

  std::uint64_t entries() const { return index_.entries.size(); }
  std::uint64_t file_bytes() const { return end_; }

 private:
  void write(Bytes bytes);

  std::string path_, temporary_;
  File file_;
  std::uint64_t end_ = bundle_header_bytes;
  BundleIndex index_;
  std::unordered_set<std::string> names_;
};

}  // namespace fovea::store

// A bundle: one file with the blobs of many keys, made ahead and carried to other machines.
//
//     header  "FOVEABND" | u32 format | u32 0 | u64 bytes of the file | u64 where the index begins
//             | u64 entries | u64 sum of the index | u64 sum of the header before this
//     blobs   one after the other
//     index   u32 size and text of who made it, then per entry:
//             u64 offset | u64 bytes | u64 sum | key
//
// The index is read and checked whole when a bundle is opened, each blob when it is asked for.
// Files come from anywhere: every number in them is checked before it is used.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "store/file.h"
#include "store/store.h"

namespace fovea::store {

constexpr std::uint32_t bundle_format = 1;
constexpr std::size_t bundle_header_bytes = 56;

// Where a blob lies.
struct BundleEntry {
  Key key;
  std::uint64_t offset = 0, bytes = 0, sum = 0;
};

struct BundleHeader {
  std::uint64_t file_bytes = 0, index_offset = 0, entries = 0, index_sum = 0;
};
struct BundleIndex {
  std::string made_by;  // "fovea 0.1.0"
  std::vector<BundleEntry> entries;
};

// The form of the file, without the file. The decoders throw Damaged.
std::vector<std::uint8_t> encode(const BundleHeader& header);
std::vector<std::uint8_t> encode(const BundleIndex& index);
BundleHeader decode_bundle_header(Bytes header, std::uint64_t file_bytes);
BundleIndex decode_bundle_index(Bytes index, const BundleHeader& header);

class Bundle {
 public:
  // Throws InvalidArgument: "plans.fovea: is damaged: ...".
  static Bundle open(const std::string& path);

  const std::string& path() const { return path_; }
  const BundleIndex& index() const { return index_; }

  // Nothing if there is no such key. Throws Damaged if there is, but not its blob.
  std::optional<Blob> find(const Key& key) const;
  Blob read(const BundleEntry& entry) const;  // throws Damaged

  // What its keys name, each pair once.
  struct Section {
    std::string engine, environment;
    std::uint64_t entries = 0;
  };
  const std::vector<Section>& sections() const { return sections_; }

 private:
  Bundle() = default;
  void arrange();

  std::string path_;
  File file_;
  BundleIndex index_;
  std::vector<Section> sections_;
  std::unordered_multimap<std::uint64_t, std::size_t> by_hash_;
};

// Writes a bundle: blobs go to the file as they come, the index last; nothing is seen under the
// bundle's name before it is whole. Faults of the disk throw InvalidArgument: here the file is what
// was asked for. One thread at a time may use it.
class BundleWriter {
 public:
  explicit BundleWriter(const std::string& path);
  ~BundleWriter();  // without finish(): leaves nothing behind
  BundleWriter(const BundleWriter&) = delete;
  BundleWriter& operator=(const BundleWriter&) = delete;

  // False: there is one of this key already.
  bool add(const Key& key, const Blob& blob);
  void add(const Bundle& other);  // all of it; throws InvalidArgument if a blob is damaged

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

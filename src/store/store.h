// Blobs that outlive a process: serialised plans (70-250 KB each), found by what they depend on.
// They come from the bundles that were loaded, then from the user's cache folder; else they are
// built and written there. The store knows nothing of any engine: the engine decides what is in a
// blob and what its key must say.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace fovea::store {

using Blob = std::vector<std::uint8_t>;
using Bytes = std::span<const std::uint8_t>;

// What a blob depends on, in words. Keys are compared in full when a blob is found, so a collision
// of hashes costs one rebuild. Engines make them, listings print them.
struct Key {
  std::string engine;       // "cudnn"
  std::string environment;  // "cudnn 9.19.0 ... sm_90": blobs of another one cannot be used
  // All else: best the lowered form itself, so that a change of the lowering is a change of the
  // key. Listings show its first line: the problem.
  std::string content;

  bool operator==(const Key&) const = default;
};

struct KeyHash {
  std::size_t operator()(const Key& key) const {
    return std::hash<std::string>{}(key.content);  // the rest is the same for most
  }
};

// 32 hexadecimal digits, the same in every process and on every machine.
std::string name_of(const Key& key);

// The first line of the content.
std::string summary_of(const Key& key);

enum class Origin : std::uint8_t { Bundle, Disk, Built };

// The blob of this key, of the process's store. One build per key: other threads of this process
// wait for it and get the same blob or exception; other processes wait and then find it on disk.
// If locks fail, or a builder is stuck for a minute, a process builds its own. A fault of the disk
// or of a file is no error: the blob counts as missing. `build` must not ask for the same key.
Blob get_or_build(const Key& key, const std::function<Blob()>& build, Origin* origin = nullptr);

// Removes a blob from the disk that its library refuses; bundles are not asked for this key again.
// Call get_or_build() once more after it.
void discard(const Key& key);

// A blob that was handed out, and where it came from.
struct Recorded {
  Key key;
  Blob blob;
  Origin origin = Origin::Built;
};

// Collects the blobs that this thread gets from the store while it lives: Planner::compile_ahead
// fills bundles with them. If several are alive, only the innermost collects.
class Recording {
 public:
  Recording();
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  std::vector<Recorded> take() { return std::move(blobs_); }

  // The store calls this for each blob that it hands out. An engine that gets blobs in threads of
  // its own calls it for those in the thread that compiles.
  static void note(const Key& key, const Blob& blob, Origin origin);

 private:
  Recording* outer_;
  std::vector<Recorded> blobs_;
};

}  // namespace fovea::store

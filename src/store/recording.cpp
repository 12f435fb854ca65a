#include "store/recording.h"

namespace fovea::store {
namespace {

thread_local Recording* innermost = nullptr;

}  // namespace

Recording::Recording() : outer_(std::exchange(innermost, this)) {}

Recording::~Recording() { innermost = outer_; }

void Recording::note(const Key& key, const Blob& blob, Origin origin) {
  if (innermost != nullptr) innermost->blobs_.push_back({key, blob, origin});
}

}  // namespace fovea::store

// Notes which blobs a piece of work gets from the store: how plans are collected into bundles
// without their engine knowing. Only what the same thread gets counts.
#pragma once

#include <utility>
#include <vector>

#include "store/store.h"

namespace fovea::store {

struct Recorded {
  Key key;
  Blob blob;
  Origin origin = Origin::Built;
};

// From here to its end; within another one, the inner one alone notes.
class Recording {
 public:
  Recording();
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  std::vector<Recorded> take() { return std::move(blobs_); }

  // Called by the store for each blob that it hands out.
  static void note(const Key& key, const Blob& blob, Origin origin);

 private:
  Recording* outer_;
  std::vector<Recorded> blobs_;
};

}  // namespace fovea::store

// The handle of a bundle that is being written, and what `fovea doctor` says about plans that are
// kept.
#pragma once

#include <mutex>
#include <string>

#include "capi/explain.h"
#include "store/bundle.h"

struct fovea_bundle_s {
  explicit fovea_bundle_s(const std::string& path) : writer(path) {}
  std::mutex mutex;
  fovea::store::BundleWriter writer;
};

namespace fovea::capi {

// Of this process, of the cache folder, of bundles.
void add_caches(Sheet& sheet);

}  // namespace fovea::capi

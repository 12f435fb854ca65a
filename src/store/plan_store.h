// The store itself: loaded bundles, then the disk, then a build. Engines and the planner include
// store.h alone; this is for capi and tests.
#pragma once

#include <atomic>
#include <memory>
#include <set>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/single_flight.h"
#include "store/bundle.h"
#include "store/disk.h"
#include "store/store.h"

namespace fovea::store {

constexpr std::uint64_t default_limit = std::uint64_t{1} << 30;

struct Settings {
  FolderChoice folder;
  std::uint64_t limit = default_limit;
  std::string bad_limit;             // a FOVEA_CACHE_LIMIT that is none; the default counts then
  std::vector<std::string> bundles;  // paths
  std::vector<std::string> stock;    // of bundles that came with the library: asked last
  std::chrono::milliseconds patience{60'000};  // with a builder in another process
};
Settings settings_from_environment();

// "500M", "2G", "65536"; nothing if it is no size.
std::optional<std::uint64_t> parse_bytes(const std::string& text);

struct Statistics {
  std::uint64_t disk_hits = 0, bundle_hits = 0, disk_writes = 0;
};

// A bundle that the environment named: loaded, or why not.
struct NamedBundle {
  std::string path;
  std::shared_ptr<const Bundle> bundle;
  std::string refusal;
};

struct Found {
  Blob blob;
  Origin origin = Origin::Built;
};

class PlanStore {
 public:
  explicit PlanStore(Settings settings);

  // See store.h; find() is the same without building.
  Blob get_or_build(const Key& key, const std::function<Blob()>& build, Origin* origin = nullptr);
  std::optional<Blob> find(const Key& key);
  void discard(const Key& key);

  // The last one loaded is asked first; one of the same path is replaced.
  void load(std::shared_ptr<const Bundle> bundle);

  Statistics statistics() const;
  const Settings& settings() const { return settings_; }
  const std::vector<NamedBundle>& named_bundles() const { return named_; }
  const Disk& disk() const { return disk_; }

 private:
  std::optional<Found> look(const Key& key);
  std::optional<Blob> find_in_bundles(const Key& key);
  void say_what_it_was_made_for(const Bundle& bundle, const Key& key);

  Settings settings_;
  Disk disk_;
  SingleFlight<Key, Found, KeyHash> builds_;
  std::vector<NamedBundle> named_;
  LogOnce said_;

  mutable std::shared_mutex mutex_;
  std::vector<std::shared_ptr<const Bundle>> bundles_;
  std::set<std::string> discarded_;
  std::atomic<std::uint64_t> disk_hits_{0}, bundle_hits_{0}, disk_writes_{0};
};

// The store of the process, with the settings that its environment had at the first call.
PlanStore& plan_store();

}  // namespace fovea::store

// The cache of plans: bounded by count and bytes, evicting the least recently used, one build per
// key however many threads ask, built outside the lock. A plan that is evicted while it runs lives
// until its last user releases it. Keys are compared in full.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "attention/engine.h"
#include "base/single_flight.h"

namespace fovea {

struct PlanKey {
  std::string engine;
  Device device;
  Baked baked;
  bool operator==(const PlanKey&) const = default;
  std::uint64_t hash() const;
};

struct CacheStatistics {
  std::uint64_t hits = 0, misses = 0, builds = 0, evictions = 0;
  std::uint64_t plans = 0, bytes = 0;  // held now
  double build_seconds = 0;
};

class PlanCache {
 public:
  using Build = std::function<std::unique_ptr<Plan>()>;

  // The plan of this key. Of all threads that ask at once one builds, the others wait (they count
  // as hits); if the build throws, all of them get the exception and the next one to ask builds
  // again.
  std::shared_ptr<const Plan> get(const PlanKey& key, const Build& build);

  // The same without building and without waiting: null if it is not there yet.
  std::shared_ptr<const Plan> find_ready(const PlanKey& key);

  // Someone who kept a plan uses it again: a hit, if the cache still holds it. False: ask get().
  bool touch(const Plan& plan);

  CacheStatistics statistics() const;
  void clear();                                          // counters stay
  void limit(std::uint64_t plans, std::uint64_t bytes);  // 0: as it is

 private:
  struct CachedPlan {
    PlanKey key;
    std::uint64_t hash = 0;
    std::shared_ptr<const Plan> plan;
    std::uint64_t bytes = 0;
  };
  using Entries = std::list<CachedPlan>;

  Entries::iterator find(const PlanKey& key, std::uint64_t hash);
  std::shared_ptr<const Plan> use(Entries::iterator entry);  // a hit; null: there is none
  std::shared_ptr<const Plan> build_and_keep(const PlanKey& key, const Build& build);
  Entries insert(CachedPlan entry);
  Entries over_limit();

  mutable std::mutex mutex_;
  Entries entries_;  // most recently used first
  std::unordered_multimap<std::uint64_t, Entries::iterator> by_hash_;
  std::unordered_map<const Plan*, Entries::iterator> by_plan_;
  struct KeyHash {
    std::size_t operator()(const PlanKey& key) const { return key.hash(); }
  };
  SingleFlight<PlanKey, std::shared_ptr<const Plan>, KeyHash> builds_;
  CacheStatistics statistics_;
  std::uint64_t most_plans_ = 256;
  std::uint64_t most_bytes_ = std::uint64_t{256} << 20;
};

}  // namespace fovea

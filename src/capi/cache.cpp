// The process's cache of plans.
#include "planner/cache.h"

#include <cstddef>

#include "capi/arguments.h"
#include "capi/guard.h"
#include "planner/planner.h"
#include "store/shelf.h"

using namespace fovea;
using namespace fovea::capi;

fovea_status fovea_cache_statistics(fovea_cache_stats* stats) {
  return guarded([&] {
    const CacheStatistics now = plan_cache().statistics();
    const store::Statistics stored = store::shelf().statistics();
    fovea_cache_stats filled{};
    filled.hits = now.hits;
    filled.misses = now.misses;
    filled.builds = now.builds;
    filled.evictions = now.evictions;
    filled.plans = now.plans;
    filled.bytes = now.bytes;
    filled.build_seconds = now.build_seconds;
    filled.disk_hits = stored.disk_hits;
    filled.bundle_hits = stored.bundle_hits;
    filled.disk_writes = stored.disk_writes;
    constexpr std::size_t first_size = offsetof(fovea_cache_stats, disk_hits);
    write_struct(stats, filled, {"stats", "fovea_cache_stats"}, first_size);
  });
}

fovea_status fovea_cache_clear() {
  return guarded([] { plan_cache().clear(); });
}

fovea_status fovea_cache_limit(uint64_t plans, uint64_t bytes) {
  return guarded([&] { plan_cache().limit(plans, bytes); });
}

// The process's cache of plans.
#include "planner/cache.h"

#include "capi/arguments.h"
#include "capi/guard.h"
#include "planner/planner.h"

using namespace fovea;
using namespace fovea::capi;

fovea_status fovea_cache_statistics(fovea_cache_stats* stats) {
  return guarded([&] {
    clear_struct(stats, {"stats", "fovea_cache_stats"});
    const CacheStatistics now = plan_cache().statistics();
    stats->hits = now.hits;
    stats->misses = now.misses;
    stats->builds = now.builds;
    stats->evictions = now.evictions;
    stats->plans = now.plans;
    stats->bytes = now.bytes;
    stats->build_seconds = now.build_seconds;
  });
}

fovea_status fovea_cache_clear() {
  return guarded([] { plan_cache().clear(); });
}

fovea_status fovea_cache_limit(uint64_t plans, uint64_t bytes) {
  return guarded([&] { plan_cache().limit(plans, bytes); });
}

#include "planner/cache.h"

#include <chrono>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/hash.h"

namespace fovea {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

std::uint64_t PlanKey::hash() const {
  return hash_combine(hash_combine(hash_text(0, engine), device.hash()), baked.problem.hash());
}

PlanCache::Entries::iterator PlanCache::find(const PlanKey& key, std::uint64_t hash) {
  const auto [first, last] = by_hash_.equal_range(hash);
  for (auto at = first; at != last; ++at) {
    if (at->second->key == key) return at->second;
  }
  return entries_.end();
}

std::shared_ptr<const Plan> PlanCache::use(Entries::iterator entry) {
  if (entry == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, entry);
  ++statistics_.hits;
  return entry->plan;
}

std::shared_ptr<const Plan> PlanCache::get(const PlanKey& key, const Build& build) {
  if (auto ready = find_ready(key)) return ready;
  bool asked_first = false;
  auto plan = builds_.once(key, [&] {
    asked_first = true;
    auto ready = find_ready(key);  // built since
    return ready ? ready : build_and_keep(key, build);
  });
  if (!asked_first) {
    const std::lock_guard lock(mutex_);
    ++statistics_.hits;
  }
  return plan;
}

std::shared_ptr<const Plan> PlanCache::find_ready(const PlanKey& key) {
  const std::uint64_t hash = key.hash();
  const std::lock_guard lock(mutex_);
  return use(find(key, hash));
}

std::shared_ptr<const Plan> PlanCache::build_and_keep(const PlanKey& key, const Build& build) {
  {
    const std::lock_guard lock(mutex_);
    ++statistics_.misses;
  }
  const auto start = std::chrono::steady_clock::now();
  const std::shared_ptr<const Plan> plan = build();
  if (!plan) throw InternalError("engine " + key.engine + " compiled no plan");
  CachedPlan entry{key, key.hash(), plan, plan->memory_bytes()};
  Entries dropped;  // destroyed after the lock is gone: plans may own library objects
  const std::lock_guard lock(mutex_);
  ++statistics_.builds;
  statistics_.build_seconds += seconds_since(start);
  try {
    dropped = insert(std::move(entry));
  } catch (const std::bad_alloc&) {
    // The plan is not kept; the threads that asked for it have it.
  }
  return plan;
}

// If it throws, nothing has changed.
PlanCache::Entries PlanCache::insert(CachedPlan entry) {
  Entries one;
  one.push_back(std::move(entry));
  const auto at = one.begin();
  const auto hashed = by_hash_.emplace(at->hash, at);
  try {
    by_plan_.emplace(at->plan.get(), at);
  } catch (...) {
    by_hash_.erase(hashed);
    throw;
  }
  entries_.splice(entries_.begin(), one);
  ++statistics_.plans;
  statistics_.bytes += at->bytes;
  return over_limit();
}

// Takes the least recently used entries out until the rest fits.
PlanCache::Entries PlanCache::over_limit() {
  Entries dropped;
  while (statistics_.plans > most_plans_ || statistics_.bytes > most_bytes_) {
    const auto oldest = std::prev(entries_.end());
    const auto [first, last] = by_hash_.equal_range(oldest->hash);
    for (auto at = first; at != last; ++at) {
      if (at->second != oldest) continue;
      by_hash_.erase(at);
      break;
    }
    by_plan_.erase(oldest->plan.get());
    --statistics_.plans;
    statistics_.bytes -= oldest->bytes;
    ++statistics_.evictions;
    dropped.splice(dropped.begin(), entries_, oldest);
  }
  return dropped;
}

bool PlanCache::touch(const Plan& plan) {
  const std::lock_guard lock(mutex_);
  const auto at = by_plan_.find(&plan);
  if (at == by_plan_.end()) return false;
  entries_.splice(entries_.begin(), entries_, at->second);
  ++statistics_.hits;
  return true;
}

CacheStatistics PlanCache::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

void PlanCache::clear() {
  Entries dropped;
  const std::lock_guard lock(mutex_);
  by_hash_.clear();
  by_plan_.clear();
  dropped.swap(entries_);
  statistics_.plans = statistics_.bytes = 0;
}

void PlanCache::limit(std::uint64_t plans, std::uint64_t bytes) {
  Entries dropped;
  const std::lock_guard lock(mutex_);
  if (plans != 0) most_plans_ = plans;
  if (bytes != 0) most_bytes_ = bytes;
  dropped = over_limit();
}

}  // namespace fovea

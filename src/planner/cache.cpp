#include "planner/cache.h"

#include <chrono>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/hash.h"

namespace fovea {
namespace {

std::uint64_t hash_text(const std::string& text) {
  std::uint64_t hash = text.size();
  for (const char c : text) hash = hash_combine(hash, static_cast<unsigned char>(c));
  return hash;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

std::uint64_t PlanKey::hash() const {
  return hash_combine(hash_combine(hash_text(engine), device.hash()), baked.problem.hash());
}

PlanCache::Entries::iterator PlanCache::find(const PlanKey& key, std::uint64_t hash) {
  const auto [first, last] = by_hash_.equal_range(hash);
  for (auto at = first; at != last; ++at) {
    if (at->second->key == key) return at->second;
  }
  return entries_.end();
}

std::shared_ptr<PlanCache::Flight> PlanCache::find_flight(const PlanKey& key, std::uint64_t hash) {
  const auto [first, last] = flights_.equal_range(hash);
  for (auto at = first; at != last; ++at) {
    if (at->second->key == key) return at->second;
  }
  return nullptr;
}

std::shared_ptr<const Plan> PlanCache::wait(std::unique_lock<std::mutex>& lock,
                                            const Flight& flight) {
  finished_.wait(lock, [&] { return flight.done; });
  if (flight.failure) std::rethrow_exception(flight.failure);
  ++statistics_.hits;
  return flight.plan;
}

std::shared_ptr<const Plan> PlanCache::use(Entries::iterator entry) {
  if (entry == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, entry);
  ++statistics_.hits;
  return entry->plan;
}

std::shared_ptr<const Plan> PlanCache::get(const PlanKey& key, const Build& build) {
  const std::uint64_t hash = key.hash();
  std::unique_lock lock(mutex_);
  if (auto ready = use(find(key, hash))) return ready;
  if (const auto flight = find_flight(key, hash)) return wait(lock, *flight);

  ++statistics_.misses;
  const auto flight = std::make_shared<Flight>();
  flight->key = key;
  flights_.emplace(hash, flight);
  lock.unlock();  // other keys go on while this one is built

  const auto start = std::chrono::steady_clock::now();
  std::shared_ptr<const Plan> plan;
  std::exception_ptr failure;
  try {
    plan = build();
    if (!plan) throw InternalError("engine " + key.engine + " compiled no plan");
  } catch (...) {
    failure = std::current_exception();
  }
  finish(*flight, {key, hash, plan, plan ? plan->memory_bytes() : 0}, failure,
         seconds_since(start));
  if (failure) std::rethrow_exception(failure);
  return plan;
}

std::shared_ptr<const Plan> PlanCache::find_ready(const PlanKey& key) {
  const std::uint64_t hash = key.hash();
  const std::lock_guard lock(mutex_);
  return use(find(key, hash));
}

// The plan is listed before the flight ends, so that no thread finds neither and builds again.
void PlanCache::finish(Flight& flight, Entry entry, const std::exception_ptr& failure,
                       double seconds) {
  Entries dropped;  // destroyed after the lock is gone: plans may own library objects
  const std::uint64_t hash = entry.hash;
  const std::lock_guard lock(mutex_);
  flight.plan = entry.plan;
  flight.failure = failure;
  if (!failure) {
    ++statistics_.builds;
    statistics_.build_seconds += seconds;
    try {
      dropped = insert(std::move(entry));
    } catch (const std::bad_alloc&) {
      // Not kept; those who asked for it have it. Nobody may wait for ever.
    }
  }
  flight.done = true;
  const auto [first, last] = flights_.equal_range(hash);
  for (auto at = first; at != last; ++at) {
    if (at->second.get() != &flight) continue;
    flights_.erase(at);
    break;
  }
  finished_.notify_all();
}

// All or nothing.
PlanCache::Entries PlanCache::insert(Entry entry) {
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

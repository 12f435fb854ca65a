#include "planner/memo.h"

#include <utility>

namespace fovea {
namespace {

constexpr std::size_t most_entries = 1024;

// The device and the engine are few: the Problem alone is hashed.
std::uint64_t hash_of(const ChoiceKey& key) { return key.problem.hash(); }

// A caller that asks again mostly brings the same object.
bool same(const std::shared_ptr<const Problem>& a, const std::shared_ptr<const Problem>& b) {
  return a == b || (a != nullptr && b != nullptr && *a == *b);
}

}  // namespace

ChoiceMemo::Entries::const_iterator ChoiceMemo::find(const Entries& entries, std::uint64_t hash,
                                                     const ChoiceKey& key) {
  const auto [first, last] = entries.equal_range(hash);
  for (auto at = first; at != last; ++at) {
    const RememberedChoice& entry = at->second;
    if (entry.engine == key.engine && entry.device == key.device && entry.problem == key.problem &&
        same(entry.partner, key.partner)) {
      return at;
    }
  }
  return entries.end();
}

std::optional<Choice> ChoiceMemo::find(const ChoiceKey& key) const {
  const std::uint64_t hash = hash_of(key);
  const std::lock_guard lock(mutex_);
  const auto at = find(entries_, hash, key);
  if (at == entries_.end()) return std::nullopt;
  return at->second.choice;
}

void ChoiceMemo::remember(const ChoiceKey& key, Choice choice) {
  const std::uint64_t hash = hash_of(key);
  Entries dropped;  // destroyed after the lock is gone
  const std::lock_guard lock(mutex_);
  if (const auto at = find(entries_, hash, key); at != entries_.end()) entries_.erase(at);
  if (entries_.size() >= most_entries) dropped.swap(entries_);
  entries_.emplace(
      hash, RememberedChoice{key.problem, key.device, key.engine, key.partner, std::move(choice)});
}

void ChoiceMemo::clear() {
  Entries dropped;
  const std::lock_guard lock(mutex_);
  dropped.swap(entries_);
}

}  // namespace fovea

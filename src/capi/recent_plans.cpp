#include "capi/recent_plans.h"

#include "planner/planner.h"

namespace fovea::capi {

std::optional<FoundPlan> RecentPlans::find(const PlanWords& words) const {
  FoundPlan found;
  {
    const std::lock_guard lock(mutex_);
    for (const Entry& entry : entries_) {
      if (!entry.is_for(words)) continue;
      found = {entry.facts, entry.plan.lock()};
      break;
    }
  }
  if (!found.plan || !plan_cache().touch(*found.plan)) return std::nullopt;
  return found;
}

void RecentPlans::remember(const PlanWords& words, const FoundPlan& found) {
  Entry entry{std::string(words.engine), std::string(words.device), words.partner, found.facts,
              found.plan};
  const std::lock_guard lock(mutex_);
  for (Entry& known : entries_) {
    if (known.is_for(words)) return std::swap(known, entry);
  }
  std::swap(entries_[next_], entry);
  next_ = (next_ + 1) % entries_.size();
}

}  // namespace fovea::capi

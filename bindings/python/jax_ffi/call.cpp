#include "call.h"

#include <utility>

namespace fovea_jax {

CustomCall::CustomCall(const Attributes& attributes, fovea_direction direction)
    : problems_(fovea::Problem::parse(std::string(attributes.problem))),
      engine_(attributes.engine),
      operands_(parse_slots(attributes.operands)),
      results_(parse_slots(attributes.results)) {
  // A line of a training pair gives the forward first.
  if (direction == FOVEA_BACKWARD && problems_.second) {
    std::swap(problems_.first, *problems_.second);
  }
}

const PreparedPlan& CustomCall::plan_on(const std::string& device) {
  PreparedPlan& prepared = entry_of(device);
  // A build that throws leaves the flag as it was: the next call tries again.
  std::call_once(prepared.built, [&] { build(prepared); });
  return prepared;
}

PreparedPlan& CustomCall::entry_of(const std::string& device) {
  const std::lock_guard lock(mutex_);
  for (const auto& entry : plans_) {
    if (entry->device == device) return *entry;
  }
  plans_.push_back(std::make_unique<PreparedPlan>());
  plans_.back()->device = device;
  return *plans_.back();
}

void CustomCall::build(PreparedPlan& prepared) const {
  const fovea::Where where{engine_, prepared.device, problems_.second};
  prepared.plan.emplace(problems_.first, where);
  prepared.workspace_bytes = prepared.plan->workspace();
}

}  // namespace fovea_jax

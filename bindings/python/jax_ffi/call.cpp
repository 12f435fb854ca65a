#include "call.h"

namespace fovea_jax {
namespace {

void check(fovea_status status) {
  if (status != FOVEA_OK) throw Failure{status, fovea_last_error()};
}

}  // namespace

Call::Call(const Attributes& attributes, fovea_direction direction)
    : engine_(attributes.engine),
      operands_(parse_slots(attributes.operands)),
      results_(parse_slots(attributes.results)) {
  fovea_problem first = nullptr;
  fovea_problem second = nullptr;
  check(fovea_problem_parse(std::string(attributes.problem).c_str(), &first, &second));
  problem_.reset(first);
  partner_.reset(second);
  // A line of a training pair gives the forward first.
  if (direction == FOVEA_BACKWARD && partner_) problem_.swap(partner_);
}

const PreparedPlan& Call::plan_on(const std::string& device) {
  PreparedPlan& prepared = entry_of(device);
  // A build that throws leaves the flag as it was: the next call tries again.
  std::call_once(prepared.built, [&] { build(prepared); });
  return prepared;
}

PreparedPlan& Call::entry_of(const std::string& device) {
  const std::lock_guard lock(mutex_);
  for (const auto& entry : plans_) {
    if (entry->device == device) return *entry;
  }
  plans_.push_back(std::make_unique<PreparedPlan>());
  plans_.back()->device = device;
  return *plans_.back();
}

void Call::build(PreparedPlan& prepared) const {
  fovea_plan_options options{};
  options.struct_size = sizeof options;
  options.engine = engine_.empty() ? nullptr : engine_.c_str();
  options.device = prepared.device.c_str();
  options.partner = partner_.get();
  fovea_plan plan = nullptr;
  check(fovea_plan_create(problem_.get(), &options, &plan));
  prepared.plan.reset(plan);
  check(fovea_plan_workspace(plan, nullptr, &prepared.workspace_bytes));
}

}  // namespace fovea_jax

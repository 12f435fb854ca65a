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
  const std::lock_guard lock(mutex_);
  for (const auto& [name, plan] : plans_) {
    if (name == device) return *plan;
  }
  fovea_plan_options options{};
  options.struct_size = sizeof options;
  options.engine = engine_.empty() ? nullptr : engine_.c_str();
  options.device = device.c_str();
  options.partner = partner_.get();
  auto prepared = std::make_unique<PreparedPlan>();
  fovea_plan plan = nullptr;
  check(fovea_plan_create(problem_.get(), &options, &plan));
  prepared->plan.reset(plan);
  check(fovea_plan_workspace(plan, nullptr, &prepared->workspace_bytes));
  return *plans_.emplace_back(device, std::move(prepared)).second;
}

}  // namespace fovea_jax

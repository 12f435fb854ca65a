// One custom call of a compiled XLA program: its problem, parsed once, and its plan on each device.
// Made when XLA instantiates the program, destroyed with it; run by handlers.cpp from any thread.
#pragma once

#include <fovea/handle.hpp>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bind.h"

namespace fovea_jax {

struct Attributes {
  std::string_view problem, engine, operands, results;
};

struct PreparedPlan {
  std::once_flag built;  // outside of any lock: devices do not wait for each other's builds
  std::optional<fovea::Plan> plan;
  std::size_t workspace_bytes = 0;
};

class CustomCall {
 public:
  // Throws fovea::Error or std::invalid_argument.
  CustomCall(const Attributes& attributes, fovea_direction direction)
      : problems_(fovea::Problem::parse(std::string(attributes.problem))),
        engine_(attributes.engine),
        operands_(parse_slots(attributes.operands)),
        results_(parse_slots(attributes.results)) {
    // A line of a training pair gives the forward first.
    if (direction == FOVEA_BACKWARD && problems_.second) {
      std::swap(problems_.first, *problems_.second);
    }
  }

  // The plan for a device ("cpu", "cuda:0"); built by the first call. Throws fovea::Error.
  const PreparedPlan& plan_on(const std::string& device) {
    PreparedPlan& prepared = entry_of(device);
    // A build that throws leaves the flag as it was: the next call tries again.
    std::call_once(prepared.built, [&] {
      prepared.plan.emplace(problems_.first, fovea::Where{engine_, device, problems_.second});
      prepared.workspace_bytes = prepared.plan->workspace();
    });
    return prepared;
  }

  const std::vector<Slot>& operands() const { return operands_; }
  const std::vector<Slot>& results() const { return results_; }

 private:
  using Problems = std::pair<fovea::Problem, std::optional<fovea::Problem>>;

  PreparedPlan& entry_of(const std::string& device) {
    const std::lock_guard lock(mutex_);
    return plans_[device];
  }

  Problems problems_;  // this call's, and its partner in a training pair
  std::string engine_;
  std::vector<Slot> operands_, results_;
  std::mutex mutex_;                           // guards plans_
  std::map<std::string, PreparedPlan> plans_;  // by device; an entry never moves
};

}  // namespace fovea_jax

// One custom call of a compiled XLA program: its problem, parsed once, and its plan on each device.
// Made when XLA instantiates the program, destroyed with it; run by handlers.cpp from any thread.
#pragma once

#include <fovea/handle.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bind.h"

namespace fovea_jax {

struct Attributes {
  std::string_view problem, engine, operands, results;
};

struct PreparedPlan {
  std::string device;
  std::once_flag built;  // outside of any lock: devices do not wait for each other's builds
  std::optional<fovea::Plan> plan;
  std::size_t workspace_bytes = 0;
};

class CustomCall {
 public:
  // Throws fovea::Error or std::invalid_argument.
  CustomCall(const Attributes& attributes, fovea_direction direction);

  // The plan for a device ("cpu", "cuda:0"); built by the first call. Throws fovea::Error.
  const PreparedPlan& plan_on(const std::string& device);

  const std::vector<Slot>& operands() const { return operands_; }
  const std::vector<Slot>& results() const { return results_; }

 private:
  using Problems = std::pair<fovea::Problem, std::optional<fovea::Problem>>;

  PreparedPlan& entry_of(const std::string& device);
  void build(PreparedPlan& prepared) const;

  Problems problems_;  // this call's, and its partner in a training pair
  std::string engine_;
  std::vector<Slot> operands_, results_;
  std::mutex mutex_;  // guards plans_; an entry never moves
  std::vector<std::unique_ptr<PreparedPlan>> plans_;
};

}  // namespace fovea_jax

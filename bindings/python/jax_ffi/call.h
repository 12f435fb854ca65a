// One custom call of a compiled XLA program: its problem, parsed once, and its plan on each device.
// Made when XLA instantiates the program, destroyed with it; run by handlers.cpp from any thread.
#pragma once

#include <fovea/fovea.h>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "roles.h"

namespace fovea_jax {

template <auto destroy>
struct Destroyer {
  template <typename T>
  void operator()(T* handle) const {
    destroy(handle);
  }
};
template <typename Handle, auto destroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroyer<destroy>>;
using Problem = Owned<fovea_problem, fovea_problem_destroy>;
using Plan = Owned<fovea_plan, fovea_plan_destroy>;

// A failure of the library, with its text.
struct Failure {
  fovea_status status = FOVEA_OK;
  std::string text;
};

struct Attributes {
  std::string_view problem, engine, operands, results;
};

struct PreparedPlan {
  std::string device;
  std::once_flag built;  // outside of any lock: devices do not wait for each other's builds
  Plan plan;
  std::size_t workspace_bytes = 0;
};

class Call {
 public:
  // Throws Failure or std::invalid_argument.
  Call(const Attributes& attributes, fovea_direction direction);

  // The plan for a device ("cpu", "cuda:0"); built where it is the first call. Throws Failure.
  const PreparedPlan& plan_on(const std::string& device);

  const std::vector<Slot>& operands() const { return operands_; }
  const std::vector<Slot>& results() const { return results_; }

 private:
  PreparedPlan& entry_of(const std::string& device);
  void build(PreparedPlan& prepared) const;

  Problem problem_, partner_;
  std::string engine_;
  std::vector<Slot> operands_, results_;
  std::mutex mutex_;  // guards plans_; an entry never moves
  std::vector<std::unique_ptr<PreparedPlan>> plans_;
};

}  // namespace fovea_jax

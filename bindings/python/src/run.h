// One call of a plan from Python: keywords of Plan.run as the fields of fovea_bindings.
#pragma once

#include <fovea/handle.hpp>

#include <string>

#include "module.h"

namespace fovea_python {

struct PlanObject {
  fovea::Problem problem;
  fovea::Plan plan;
  std::string device;           // as asked for; "cpu" where nothing was
  std::size_t workspace_bytes;  // for the problem's own sizes

  bool on_host() const { return device == "cpu"; }
};

void run(const PlanObject& plan, const nb::args& tensors, const nb::kwargs& values);

// The steps of one rank of many as JSON, or without one the table for people. `how` is (ranks,
// strategy, order, head_ranks); `values` are keywords of run(): starts, lengths and captured things
// in host memory.
std::string parallel_plan(const fovea::Problem& problem, const nb::tuple& how,
                          const nb::object& rank, const nb::kwargs& values);

// The names that run() takes, for its documentation and its errors.
std::string run_keywords();

}  // namespace fovea_python

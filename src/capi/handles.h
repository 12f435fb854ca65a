// What stands behind the opaque handles of the C interface. Immutable once made, for all that
// callers see.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attention/engine.h"
#include "attention/problem.h"
#include "capi/arguments.h"
#include "capi/recent_plans.h"
#include "fovea/fovea.h"
#include "planner/planner.h"

struct fovea_report_s {
  std::string text;
};

struct fovea_program_s {
  explicit fovea_program_s(const char* line);
  fovea_program_s(fovea::ir::Program made, fovea::ir::Literals kind);

  // Literals that were rounded to f32 are read again from the text.
  fovea::ir::Program with_literals(fovea::ir::Literals kind) const;

  fovea::ir::Literals literals;
  std::string text;  // as it was given; empty: to be printed
  fovea::ir::Program program;
  std::vector<std::string> extents;  // of each tensor: "H,129"

 private:
  void describe_extents();
};

struct fovea_problem_s {
  explicit fovea_problem_s(fovea::Problem made);

  std::shared_ptr<const fovea::Problem> problem;  // its plans share it
  fovea_program_s program;                        // for those who ask for a description
  std::string tensor_strides;                     // "bias:1,64,4096"
  std::string grads;                              // "q,k,v,slopes"
  std::shared_ptr<const fovea::Problem> partner;  // of a line with direction=both; null: none
  mutable fovea::capi::RecentPlans recent;        // so that the next call finds its plan at once
};

struct fovea_plan_s : fovea::capi::FoundPlan {};

namespace fovea::capi {

// A report for the caller: to be destroyed by it.
inline fovea_report new_report(std::string text) { return new fovea_report_s{std::move(text)}; }

// The handle's content, or InvalidArgument that names the argument.
template <class Handle>
auto& content(Handle handle, const char* name) {
  need(handle, name);
  return *handle;
}

// What a C caller asks of the planner. `options` null: every default. The partner is that of the
// options, else the one that the problem was parsed with. Throws InvalidArgument.
PlanWords to_words(const fovea_problem_s& problem, const fovea_plan_options* options);
PlanRequest to_request(const PlanWords& words);

}  // namespace fovea::capi

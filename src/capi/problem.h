// The handle of a Problem, and what its callers ask of the planner.
#pragma once

#include <memory>
#include <string>

#include "attention/problem.h"
#include "capi/plan.h"
#include "capi/program.h"
#include "fovea/fovea.h"
#include "planner/explanation.h"

// Immutable once made, as far as callers see.
struct fovea_problem_s {
  explicit fovea_problem_s(fovea::Problem made);

  std::shared_ptr<const fovea::Problem> problem;  // its plans share it
  fovea_program_s program;                        // for those who ask for a description
  std::string tensor_strides;                     // "bias:1,64,4096"
  std::string grads;                              // "q,k,v,slopes"
  std::shared_ptr<const fovea::Problem> partner;  // of a line with direction=both; null: none
  mutable fovea::capi::RecentPlans recent;        // so that the next call finds its plan at once
};

namespace fovea::capi {

// `options` null: every default. The partner is that of the options, else the one that the problem
// was parsed with. Throws InvalidArgument.
PlanWords to_words(const fovea_problem_s& problem, const fovea_plan_options* options);
PlanRequest to_request(const PlanWords& words);

}  // namespace fovea::capi

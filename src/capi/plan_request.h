// What a C caller asks of the planner.
#pragma once

#include "capi/handles.h"
#include "fovea/fovea.h"
#include "planner/planner.h"

namespace fovea::capi {

// `options` null: every default. The partner is that of the options, else the one that the problem
// was parsed with. Throws InvalidArgument.
PlanWords to_words(const fovea_problem_s& problem, const fovea_plan_options* options);
PlanRequest to_request(const PlanWords& words);

}  // namespace fovea::capi

// What a C caller asks of the planner. Used by plan and support.
#pragma once

#include "fovea/fovea.h"
#include "planner/planner.h"

namespace fovea::capi {

PlanRequest to_request(const fovea_plan_options* options);  // null: every default

}  // namespace fovea::capi

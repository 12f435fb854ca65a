// The one place that names the engines, in order of choice.
#include "engines/cpu/engine.h"
#include "engines/cudnn/engine.h"
#include "engines/jit/engine.h"
#include "engines/reference/engine.h"
#include "planner/planner.h"

namespace fovea {

// Never destroyed: plans may be in use, or their libraries already gone, when a process ends.
Planner& planner() {
  static Planner& process = *new Planner({
      {&cudnn_engine()},
      {&jit_engine()},
      {&cpu_engine()},
      {&reference_engine(), /*only_when_named=*/true},
  });
  return process;
}

PlanCache& plan_cache() { return planner().cache(); }

std::shared_ptr<const Explanation> explain(const Problem& problem, const PlanRequest& request,
                                           bool prove) {
  return planner().explain(problem, request, prove);
}

PlannedCall make_plan(const Problem& problem, const PlanRequest& request) {
  return planner().make_plan(problem, request);
}

}  // namespace fovea

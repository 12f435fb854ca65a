// Plans: made, asked for their workspace, and run.
#include "attention/engine.h"

#include "attention/validate.h"
#include "base/error.h"
#include "base/log.h"
#include "capi/call.h"
#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/plan_request.h"
#include "cuda/driver.h"

using namespace fovea;
using namespace fovea::capi;

namespace {

fovea_plan_s make(const fovea_problem_s& problem, const fovea_plan_options* options,
                  bool may_build = true) {
  PlanRequest request = to_request(problem, options);
  request.may_build = may_build || request.device.kind == DeviceKind::Cpu;
  fovea_plan_s plan{problem.problem, make_plan(*problem.problem, request), request.device.kind, {}};
  if (request.device.described) plan.described_as = std::move(request.device.name);
  return plan;
}

std::size_t workspace_bytes(const fovea_plan_s& plan, const fovea_sizes* sizes) {
  if (sizes == nullptr) return plan.call.plan->workspace_bytes(plan.problem->sizes);
  Problem resized = *plan.problem;
  resized.sizes = to_sizes(*sizes);
  for (const NamedTensor& tensor : named_tensors()) (resized.*tensor.spec).strides.reset();
  validate(resized);
  return plan.call.plan->workspace_bytes(resized.sizes);
}

void run(const fovea_plan_s& plan, const fovea_bindings* bindings) {
  if (!plan.described_as.empty()) {
    throw InvalidArgument("the plan is for " + plan.described_as +
                          ", which is only described; it can be explained, not run");
  }
  const auto given = read_struct(bindings, {"bindings", "fovea_bindings"});
  const Call call(plan, given);
  validate(*plan.problem, call.bindings(), *plan.call.plan, plan.device != DeviceKind::Cpu);
  if (log_enabled()) log_line(call_command(plan, call.bindings()) + "  # call");
  plan.call.plan->run(call.bindings());
}

void check_direction(const fovea_problem_s& problem, Direction direction) {
  if (problem.problem->direction == direction) return;
  throw InvalidArgument(direction == Direction::Forward
                            ? "problem is a backward; fovea_forward takes a forward"
                            : "problem is a forward; fovea_backward takes a backward");
}

struct WholeCall {
  fovea_problem problem;
  const fovea_plan_options* options;
  const fovea_bindings* bindings;
  size_t* workspace_bytes;
};

fovea_status plan_and_run(Direction direction, const WholeCall& whole) {
  return guarded([&] {
    const fovea_problem_s& problem = content(whole.problem, "problem");
    check_direction(problem, direction);
    fovea_bindings given{};
    if (whole.bindings != nullptr || whole.workspace_bytes == nullptr) {
      given = read_struct(whole.bindings, {"bindings", "fovea_bindings"});
    }
    const bool captured = given.stream != nullptr && cuda::is_capturing(given.stream);
    const fovea_plan_s plan = make(problem, whole.options, !captured);
    if (whole.workspace_bytes != nullptr && given.workspace == nullptr) {
      *whole.workspace_bytes = workspace_bytes(plan, given.sizes);
    } else {
      run(plan, whole.bindings);
    }
  });
}

}  // namespace

fovea_status fovea_plan_create(fovea_problem problem, const fovea_plan_options* options,
                               fovea_plan* plan) {
  return guarded([&] {
    need(plan, "plan");
    *plan = nullptr;
    *plan = new fovea_plan_s(make(content(problem, "problem"), options));
  });
}

void fovea_plan_destroy(fovea_plan plan) { delete plan; }

const char* fovea_plan_engine(fovea_plan plan) {
  return plan == nullptr ? "" : plan->call.engine.c_str();
}

fovea_status fovea_plan_workspace(fovea_plan plan, const fovea_sizes* sizes, size_t* bytes) {
  return guarded([&] {
    const fovea_plan_s& asked = content(plan, "plan");
    need(bytes, "bytes");
    *bytes = workspace_bytes(asked, sizes);
  });
}

fovea_status fovea_plan_run(fovea_plan plan, const fovea_bindings* bindings) {
  return guarded([&] { run(content(plan, "plan"), bindings); });
}

fovea_status fovea_forward(fovea_problem problem, const fovea_plan_options* options,
                           const fovea_bindings* bindings, size_t* workspace) {
  return plan_and_run(Direction::Forward, {problem, options, bindings, workspace});
}

fovea_status fovea_backward(fovea_problem problem, const fovea_plan_options* options,
                            const fovea_bindings* bindings, size_t* workspace) {
  return plan_and_run(Direction::Backward, {problem, options, bindings, workspace});
}

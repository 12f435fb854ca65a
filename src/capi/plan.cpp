#include "capi/plan.h"

#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "capi/call.h"
#include "capi/problem.h"
#include "capi/report.h"
#include "cuda/driver.h"
#include "planner/verify.h"

using namespace fovea;
using namespace fovea::capi;

namespace {

fovea_bindings read_bindings(const fovea_bindings* bindings) {
  return read_struct(bindings, {"bindings", "fovea_bindings"}, first_bindings_size);
}

// FOVEA_ENGINE counts if no engine is named, also if it has changed since.
PlanWords with_environment(PlanWords words, const std::optional<std::string>& engine) {
  if (words.engine.empty() && engine) words.engine = *engine;
  return words;
}

FoundPlan build(const fovea_problem_s& problem, const PlanWords& words, void* stream) {
  PlanRequest request = to_request(words);
  // Nothing can be built while a stream is captured.
  request.may_build =
      stream == nullptr || request.device.kind == DeviceKind::Cpu || !cuda::is_capturing(stream);
  PlannedCall call = planner().make_plan(*problem.problem, request);
  PlanFacts facts{problem.problem,          CallRules(*problem.problem), std::move(call.engine),
                  std::move(call.literals), request.device.kind,         {}};
  if (request.device.described) facts.described_as = std::move(request.device.name);
  return {std::make_shared<const PlanFacts>(std::move(facts)), std::move(call.plan)};
}

FoundPlan find_or_build(const fovea_problem_s& problem, const fovea_plan_options* options,
                        void* stream) {
  const PlanWords asked = to_words(problem, options);
  const auto environment = asked.engine.empty() ? env_value(Env::Engine) : std::nullopt;
  const PlanWords words = with_environment(asked, environment);
  if (auto known = problem.recent.find(words)) return *std::move(known);
  FoundPlan made = build(problem, asked, stream);
  // The file of a description may change.
  if (made.facts->described_as.empty()) problem.recent.remember(words, made);
  return made;
}

std::size_t workspace_bytes(const FoundPlan& plan, const fovea_sizes* sizes) {
  const Problem& problem = *plan.facts->problem;
  if (sizes == nullptr) return plan.plan->workspace_bytes(problem.sizes);
  const Sizes asked = to_sizes(*sizes);
  validate(problem, asked);
  return plan.plan->workspace_bytes(asked);
}

void refuse_described(const PlanFacts& facts) {
  if (facts.described_as.empty()) return;
  throw InvalidArgument("the plan is for " + facts.described_as +
                        ", which is only described; it can be explained, not run");
}

bool verifies_first_calls() {
  static const bool wanted = [] {
    const auto value = env_value(Env::Verify);
    if (value && *value != "first") {
      throw InvalidArgument("FOVEA_VERIFY is '" + *value + "'; it must be first, or unset");
    }
    return value.has_value();
  }();
  return wanted;
}

// The first call of a plan that is not recorded into a graph.
void verify(const PlanFacts& facts, const Bindings& bindings) {
  const bool on_gpu = facts.device != DeviceKind::Cpu;
  if (facts.engine == "reference" || (on_gpu && cuda::is_capturing(bindings.stream))) return;
  if (facts.verified->test_and_set()) return;
  const std::string text = differences(planner(), {*facts.problem, bindings, facts.device});
  if (text.empty()) return;
  throw InternalError("verify: engine " + facts.engine + ": " + text + ": " +
                      call_command(facts, bindings));
}

void run(const FoundPlan& plan, const fovea_bindings& given) {
  const PlanFacts& facts = *plan.facts;
  const CallBindings call(facts, given);
  facts.rules.check(call.bindings(), *plan.plan, facts.device != DeviceKind::Cpu);
  if (log_enabled()) log_line(call_command(facts, call.bindings()) + "  # call");
  plan.plan->run(call.bindings());
  if (facts.problem->verify || verifies_first_calls()) verify(facts, call.bindings());
}

void check_direction(const fovea_problem_s& problem, Direction direction) {
  constexpr const char* names[] = {"forward", "backward", "tangent"};
  const auto name = [&](Direction of) { return std::string(names[static_cast<std::size_t>(of)]); };
  if (problem.problem->direction == direction) return;
  throw InvalidArgument("problem is a " + name(problem.problem->direction) + "; fovea_" +
                        name(direction) + " takes a " + name(direction));
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
      given = read_bindings(whole.bindings);
    }
    const FoundPlan plan = find_or_build(problem, whole.options, given.stream);
    if (whole.workspace_bytes != nullptr && given.workspace == nullptr) {
      *whole.workspace_bytes = workspace_bytes(plan, given.sizes);
    } else {
      refuse_described(*plan.facts);
      run(plan, given);
    }
  });
}

}  // namespace

fovea_status fovea_plan_create(fovea_problem problem, const fovea_plan_options* options,
                               fovea_plan* plan) {
  return create(plan, "plan", [&] {
    return new fovea_plan_s{find_or_build(content(problem, "problem"), options, nullptr)};
  });
}

void fovea_plan_destroy(fovea_plan plan) { delete plan; }

const char* fovea_plan_engine(fovea_plan plan) {
  return plan == nullptr ? "" : plan->facts->engine.c_str();
}

fovea_status fovea_plan_workspace(fovea_plan plan, const fovea_sizes* sizes, size_t* bytes) {
  return guarded([&] {
    const fovea_plan_s& asked = content(plan, "plan");
    need(bytes, "bytes");
    *bytes = workspace_bytes(asked, sizes);
  });
}

fovea_status fovea_plan_run(fovea_plan plan, const fovea_bindings* bindings) {
  return guarded([&] {
    const fovea_plan_s& asked = content(plan, "plan");
    refuse_described(*asked.facts);
    run(asked, read_bindings(bindings));
  });
}

fovea_status fovea_forward(fovea_problem problem, const fovea_plan_options* options,
                           const fovea_bindings* bindings, size_t* workspace) {
  return plan_and_run(Direction::Forward, {problem, options, bindings, workspace});
}

fovea_status fovea_backward(fovea_problem problem, const fovea_plan_options* options,
                            const fovea_bindings* bindings, size_t* workspace) {
  return plan_and_run(Direction::Backward, {problem, options, bindings, workspace});
}

namespace fovea::capi {

std::optional<FoundPlan> RecentPlans::find(const PlanWords& words) const {
  FoundPlan found;
  {
    const std::lock_guard lock(mutex_);
    for (const RecentPlan& entry : entries_) {
      if (!entry.is_for(words)) continue;
      found = {entry.facts, entry.plan.lock()};
      break;
    }
  }
  if (!found.plan || !planner().cache().touch(*found.plan)) return std::nullopt;
  return found;
}

void RecentPlans::remember(const PlanWords& words, const FoundPlan& found) {
  RecentPlan entry{std::string(words.engine), std::string(words.device), words.partner, found.facts,
                   found.plan};
  const std::lock_guard lock(mutex_);
  for (RecentPlan& known : entries_) {
    if (known.is_for(words)) return std::swap(known, entry);
  }
  std::swap(entries_[next_], entry);
  next_ = (next_ + 1) % entries_.size();
}

}  // namespace fovea::capi

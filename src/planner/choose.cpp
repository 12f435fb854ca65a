// Which engine: everyone's verdict, the choice among them, and the plan of the chosen one.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <future>
#include <utility>

#include "attention/problem_text.h"
#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "base/spelling.h"
#include "planner/best.h"
#include "planner/planner.h"
#include "planner/run_command.h"

namespace fovea {
namespace {

constexpr std::size_t most_refusals = 256;

std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

}  // namespace

Verdict refused_to_compile(const std::string& text) {
  const Reason reason{"refused_to_compile", "a plan that compiles", text, "use another engine"};
  return {Answer::No, {reason}, 0, ""};
}

const EngineVerdict* Explanation::find(const std::string& engine) const {
  const auto at = std::ranges::find(verdicts, engine, &EngineVerdict::engine);
  return at == verdicts.end() ? nullptr : &*at;
}

std::vector<std::string> Planner::engine_names() const {
  std::vector<std::string> names;
  for (const Candidate& candidate : candidates_) names.push_back(candidate.engine->name());
  return names;
}

const Engine* Planner::find_engine(const std::string& name) const {
  for (const Candidate& candidate : candidates_) {
    if (candidate.engine->name() == name) return candidate.engine;
  }
  return nullptr;
}

const Engine& Planner::engine(const std::string& name) const {
  if (const Engine* const found = find_engine(name)) return *found;
  throw InternalError("the planner chose an engine '" + name + "' that it does not have");
}

Planner::Wish Planner::wish(const PlanRequest& request) const {
  Wish wish{request.engine, false};
  if (wish.engine.empty()) {
    wish = {env_value(Env::Engine).value_or(""), true};
  }
  if (wish.engine.empty()) return {};
  if (find_engine(wish.engine) != nullptr) return wish;
  const std::vector<std::string> names = engine_names();
  throw InvalidArgument((wish.from_environment ? "FOVEA_ENGINE: " : "") + std::string("engine '") +
                        wish.engine + "' is unknown" + did_you_mean(wish.engine, names) +
                        " (engines: " + listed(names) + ")");
}

Verdict Planner::verdict_of(const Engine& engine, const Problem& problem, const Device& device,
                            bool prove) {
  Baked baked = engine.bake(problem, device).baked;
  Verdict verdict = prove ? engine.prove(baked, device) : engine.judge(baked, device);
  if (const double seconds = engine.expected_seconds(problem, device);
      can(verdict) && seconds > 0) {
    verdict.cost = seconds;
  }
  if (can(verdict) && has_refusals_) {
    const std::string refusal = noted_refusal({engine.name(), device, std::move(baked)});
    if (!refusal.empty()) verdict = refused_to_compile(refusal);
  }
  return verdict;
}

std::shared_ptr<const Explanation> Planner::judge(const Problem& problem,
                                                  const PlanRequest& request, const Wish& wish,
                                                  bool prove) {
  auto explanation = std::make_shared<Explanation>();
  for (const Candidate& candidate : candidates_) {
    const Engine& engine = *candidate.engine;
    EngineVerdict one{engine.name(), verdict_of(engine, problem, request.device, prove),
                      candidate.only_when_named};
    if (request.partner) one.partner = verdict_of(engine, *request.partner, request.device, prove);
    explanation->verdicts.push_back(std::move(one));
  }
  if (wish.engine.empty()) {
    choose_best(*explanation, problem);
  } else {
    choose_named(*explanation, problem, wish.engine, wish.from_environment);
  }
  return explanation;
}

std::shared_ptr<const Explanation> Planner::explain(const Problem& problem,
                                                    const PlanRequest& request, bool prove) {
  const Wish wanted = wish(request);
  const ChoiceKey key{problem, request.device, wanted.engine, request.partner};
  if (!prove) {
    if (auto choice = memo_.find(key)) return choice->explanation;
  }
  auto explanation = judge(problem, request, wanted, prove);
  if (!prove) memo_.remember(key, {explanation, {}, {}});
  return explanation;
}

PlannedCall Planner::make_plan(const Problem& problem, const PlanRequest& request) {
  const Wish wanted = wish(request);
  const ChoiceKey key{problem, request.device, wanted.engine, request.partner};
  std::optional<Choice> choice = memo_.find(key);
  if (choice) {
    auto plan = choice->plan.lock();
    if (plan && cache_.touch(*plan)) {
      return {std::move(plan), choice->explanation->chosen, std::move(choice->literals)};
    }
  }
  auto explanation =
      choice ? choice->explanation : judge(problem, request, wanted, /*prove=*/false);
  for (;;) {
    if (explanation->chosen.empty()) throw Unsupported(refusal_text(*explanation));
    try {
      const Engine& chosen = engine(explanation->chosen);
      const auto backward = build_backward_meanwhile(problem, request);
      PlannedCall call = build(problem, request, chosen);
      // Where the partner must follow, it is built before this one can have run.
      if (request.partner && is_pinned(problem)) build(*request.partner, request, chosen);
      memo_.remember(key, {explanation, call.plan, call.literals});
      return call;
    } catch (const Unsupported&) {  // noted by build(); every round has one engine fewer
      memo_.clear();
      explanation = judge(problem, request, wanted, /*prove=*/false);
    }
  }
}

// A backward follows its forward. What goes wrong here is met again by whoever asks for that plan.
std::future<void> Planner::build_backward_meanwhile(const Problem& problem,
                                                    const PlanRequest& request) {
  if (!request.partner || problem.direction != Direction::Forward || !request.may_build) return {};
  PlanRequest other = request;
  other.partner = std::make_shared<const Problem>(problem);
  const std::string chosen = explain(*request.partner, other, /*prove=*/false)->chosen;
  if (chosen.empty() || !engine(chosen).builds_pairs_at_once()) return {};
  return std::async(std::launch::async, [this, chosen, other, backward = request.partner] {
    build(*backward, other, engine(chosen));
  });
}

PlannedCall Planner::build(const Problem& problem, const PlanRequest& request,
                           const Engine& engine) {
  const Device& device = request.device;
  Baking baking = engine.bake(problem, device);
  const PlanKey key{engine.name(), device, std::move(baking.baked)};
  if (!request.may_build) {  // not as a build that fails: others may be waiting for that one
    auto ready = cache_.find_ready(key);
    if (ready) return {std::move(ready), key.engine, std::move(baking.literals)};
    throw DeviceError(
        "stream: it is being captured into a CUDA graph, and the plan is not built yet: make it, "
        "or run the call once, before the capture. Nothing was enqueued");
  }
  const auto compile = [&] {
    const auto start = std::chrono::steady_clock::now();
    std::unique_ptr<Plan> plan = engine.compile(key.baked, device);
    if (log_enabled()) {
      const std::chrono::duration<double, std::milli> time =
          std::chrono::steady_clock::now() - start;
      char built[64];
      std::snprintf(built, sizeof built, "  # plan built in %.3f ms", time.count());
      log_line(run_command(print(problem), key.engine) + built);
    }
    return plan;
  };
  try {
    return {cache_.get(key, compile), key.engine, std::move(baking.literals)};
  } catch (const Unsupported& refusal) {
    note_refusal(key, refusal.what());
    throw;
  }
}

void Planner::note_refusal(PlanKey key, const std::string& text) {
  const std::lock_guard lock(refusals_mutex_);
  if (refusals_.size() == most_refusals) refusals_.erase(refusals_.begin());
  refusals_.emplace_back(std::move(key), text);
  has_refusals_ = true;
}

std::string Planner::noted_refusal(const PlanKey& key) {
  const std::lock_guard lock(refusals_mutex_);
  const auto at = std::ranges::find(refusals_, key, &std::pair<PlanKey, std::string>::first);
  return at == refusals_.end() ? "" : at->second;
}

}  // namespace fovea

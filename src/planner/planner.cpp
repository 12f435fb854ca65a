#include "planner/planner.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <future>
#include <utility>

#include "attention/problem_text.h"
#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "base/words.h"
#include "engines/cpu/engine.h"
#include "engines/cudnn/engine.h"
#include "engines/jit/engine.h"
#include "engines/reference/engine.h"

namespace fovea {
namespace {

constexpr std::size_t most_refusals = 256;

Verdict refused(Reason reason) { return {Answer::No, {std::move(reason)}, 0, ""}; }

Verdict refused_to_compile(const std::string& text) {
  return refused({"refused_to_compile", "", text, ""});  // a sentence with its own advice
}

Verdict has_no_tangents(const Engine& engine) {
  return refused({"no_tangents", "engine " + engine.name() + " runs forwards and backwards",
                  "direction=tangent (a second derivative, or one in forward mode)",
                  "run it on a CPU: engine reference has it"});
}

}  // namespace

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

Planner::NamedEngine Planner::named_engine(const PlanRequest& request) const {
  NamedEngine named{request.engine, false};
  if (named.name.empty()) named = {env_value(Env::Engine).value_or(""), true};
  if (named.name.empty()) return {};
  if (find_engine(named.name) != nullptr) return named;
  const std::vector<std::string> names = engine_names();
  throw InvalidArgument((named.from_environment ? "FOVEA_ENGINE: " : "") + std::string("engine '") +
                        named.name + "' is unknown" + did_you_mean(named.name, names) +
                        " (engines: " + joined(names) + ")");
}

Planner::JudgedProblems Planner::judge(const Problem& problem, const Device& device, bool prove) {
  JudgedProblems all;
  for (const Candidate& candidate : candidates_) {
    const Engine& engine = *candidate.engine;
    if (problem.direction == Direction::Tangent && !engine.has_tangents()) {
      all.push_back(
          std::make_shared<const JudgedProblem>(JudgedProblem{{}, {has_no_tangents(engine)}}));
      continue;
    }
    JudgedProblem one{engine.bake(problem, device), {}};
    const Baked& baked = one.baking.baked;
    one.judged = prove ? engine.prove(baked, device) : engine.judge(baked, device);
    if (can(one.judged)) {
      const double seconds = engine.expected_seconds(problem, device);
      if (seconds > 0) one.judged.cost = seconds;
    }
    if (can(one.judged) && has_refusals_) {
      const std::string refusal = noted_refusal({engine.name(), device, baked});
      if (!refusal.empty()) one.judged = {refused_to_compile(refusal)};
    }
    all.push_back(std::make_shared<const JudgedProblem>(std::move(one)));
  }
  return all;
}

Choice Planner::choose(const Problem& problem, const NamedEngine& named, const JudgedProblems& own,
                       const JudgedProblems* partner) const {
  auto explanation = std::make_shared<Explanation>();
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    EngineVerdict one{candidates_[i].engine->name(), own[i]->judged,
                      candidates_[i].only_when_named};
    if (partner != nullptr) one.partner = (*partner)[i]->judged;
    explanation->verdicts.push_back(std::move(one));
  }
  if (named.name.empty()) {
    choose_best(*explanation, problem);
  } else {
    choose_named(*explanation, problem, named.name, named.from_environment);
  }
  std::shared_ptr<const JudgedProblem> chosen;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    if (explanation->verdicts[i].engine == explanation->chosen) chosen = own[i];
  }
  return {std::move(explanation), std::move(chosen)};
}

Planner::PairChoice Planner::choose_pair(const Problem& problem, const PlanRequest& request,
                                         const NamedEngine& named, bool prove) {
  const JudgedProblems own = judge(problem, request.device, prove);
  if (!request.partner) return {choose(problem, named, own, nullptr), std::nullopt};
  const JudgedProblems other = judge(*request.partner, request.device, prove);
  return {choose(problem, named, own, &other), choose(*request.partner, named, other, &own)};
}

Choice Planner::choice_of(const Problem& problem, const PlanRequest& request,
                          const NamedEngine& named) {
  const ChoiceKey key{problem, request.device, named.name, request.partner};
  if (auto known = memo_.find(key)) return *std::move(known);
  PairChoice made = choose_pair(problem, request, named, /*prove=*/false);
  if (made.partner) {
    const auto own = std::make_shared<const Problem>(problem);
    memo_.remember({*request.partner, request.device, named.name, own}, *std::move(made.partner));
  }
  memo_.remember(key, made.own);
  return made.own;
}

std::shared_ptr<const Explanation> Planner::explain(const Problem& problem,
                                                    const PlanRequest& request, bool prove) {
  const NamedEngine named = named_engine(request);
  return prove ? choose_pair(problem, request, named, prove).own.explanation
               : choice_of(problem, request, named).explanation;
}

PlannedCall Planner::make_plan(const Problem& problem, const PlanRequest& request) {
  const NamedEngine named = named_engine(request);
  for (;;) {
    Choice choice = choice_of(problem, request, named);
    const Explanation& explanation = *choice.explanation;
    if (auto plan = choice.plan.lock(); plan && cache_.touch(*plan)) {
      return {std::move(plan), explanation.chosen, choice.chosen->baking.literals};
    }
    if (explanation.chosen.empty()) throw Unsupported(refusal_text(explanation));
    try {
      std::future<void> meanwhile;
      std::optional<Choice> partner;
      PlanRequest other = request;
      if (request.partner) {
        other.partner = std::make_shared<const Problem>(problem);
        partner = choice_of(*request.partner, other, named);
        if (problem.direction == Direction::Forward) {
          meanwhile = build_meanwhile(request.partner, other, *partner);
        }
      }
      PlannedCall call = build(problem, request, choice);
      // If the partner must follow, it is built before this one can have run.
      if (partner && is_pinned(problem)) build(*request.partner, other, *partner);
      choice.plan = call.plan;
      memo_.remember({problem, request.device, named.name, request.partner}, std::move(choice));
      return call;
    } catch (const Unsupported&) {  // noted by build(); every round has one engine fewer
      memo_.clear();
    }
  }
}

// A backward follows its forward. If its build fails here, it fails again when that plan is asked
// for.
std::future<void> Planner::build_meanwhile(std::shared_ptr<const Problem> backward,
                                           const PlanRequest& request, const Choice& choice) {
  const std::string& chosen = choice.explanation->chosen;
  if (chosen.empty() || !request.may_build || !engine(chosen).builds_pairs_at_once()) return {};
  return std::async(std::launch::async, [this, backward = std::move(backward), request, choice] {
    build(*backward, request, choice);
  });
}

PlannedCall Planner::build(const Problem& problem, const PlanRequest& request,
                           const Choice& choice) {
  const Device& device = request.device;
  const auto& [baking, judged] = *choice.chosen;
  const PlanKey key{choice.explanation->chosen, device, baking.baked};
  if (!request.may_build) {  // not as a build that fails: others may be waiting for that one
    if (auto ready = cache_.find_ready(key)) return {std::move(ready), key.engine, baking.literals};
    throw DeviceError(
        "stream: it is being captured into a CUDA graph, and the plan is not built yet: make it, "
        "or run the call once, before the capture. Nothing was enqueued");
  }
  const auto compile = [&, &judged = judged] {
    const auto start = std::chrono::steady_clock::now();
    std::unique_ptr<Plan> plan = engine(key.engine).compile(key.baked, judged, device);
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
    return {cache_.get(key, compile), key.engine, baking.literals};
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

namespace {

// The blobs that compiling took; none if the engine could not, and then `verdict` says why.
std::vector<store::Recorded> compile_one(const Engine& engine, const Problem& problem,
                                         const Device& device, Verdict& verdict) {
  if (!engine.keeps_plans()) {
    verdict = refused({"keeps_no_plans", "", "its plans live in their process only",
                       "they need not be compiled ahead"});
    return {};
  }
  if (problem.direction == Direction::Tangent && !engine.has_tangents()) {
    verdict = has_no_tangents(engine);
    return {};
  }
  const Baked baked = engine.bake(problem, device).baked;
  const Judged judged = engine.judge(baked, device);
  verdict = judged;
  if (!can(verdict)) return {};
  store::Recording recording;
  try {
    engine.compile(baked, judged, device);
  } catch (const Unsupported& refusal) {
    verdict = refused_to_compile(refusal.what());
    return {};
  }
  std::vector<store::Recorded> blobs = recording.take();
  if (blobs.empty()) throw InternalError("engine " + engine.name() + " compiled and kept nothing");
  return blobs;
}

}  // namespace

std::vector<CompiledAhead> Planner::compile_ahead(const Problem& problem,
                                                  const PlanRequest& request) {
  const NamedEngine named = named_engine(request);
  std::vector<CompiledAhead> out;
  Explanation refused;
  for (const Candidate& candidate : candidates_) {
    const Engine& engine = *candidate.engine;
    const bool asked = named.name.empty() ? engine.keeps_plans() : engine.name() == named.name;
    if (!asked) continue;
    Verdict verdict;
    auto blobs = compile_one(engine, problem, request.device, verdict);
    if (!blobs.empty()) {
      out.push_back({engine.name(), std::move(blobs)});
    } else {
      refused.verdicts.push_back({engine.name(), std::move(verdict), false, {}});
    }
  }
  refused.why = refused.verdicts.empty() ? "this Fovea has no engine that keeps plans in files"
                                         : "no engine can compile this ahead";
  if (out.empty()) throw Unsupported(refusal_text(refused));
  return out;
}

std::string Planner::refuse_stored(const std::string& engine,
                                   const std::string& environment) const {
  const Engine* const found = find_engine(engine);
  return found == nullptr ? "this Fovea has no engine " + engine
                          : found->refuse_stored(environment);
}

// The one place that names the engines, in order of choice. Never destroyed: plans may be in use,
// or their libraries already gone, when a process ends.
Planner& planner() {
  static Planner& process = *new Planner({
      {&cudnn_engine()},
      {&jit_engine()},
      {&cpu_engine()},
      {&reference_engine(), /*only_when_named=*/true},
  });
  return process;
}

}  // namespace fovea

// Plans for other processes: compiled now, collected from the store, run by nobody here.
#include "base/error.h"
#include "planner/best.h"
#include "planner/planner.h"

namespace fovea {
namespace {

Verdict keeps_no_plans() {
  const Reason reason{"keeps_no_plans", "", "plans of this engine live in their process only",
                      "they need not be compiled ahead"};
  return {Answer::No, {reason}, 0, ""};
}

}  // namespace

std::vector<CompiledAhead> Planner::compile_ahead(const Problem& problem,
                                                  const PlanRequest& request) {
  const Wish wanted = wish(request);
  std::vector<CompiledAhead> out;
  Explanation refused;
  refused.why = "no engine can compile this ahead";
  for (const Candidate& candidate : candidates_) {
    const Engine& engine = *candidate.engine;
    const bool asked =
        wanted.engine.empty() ? !candidate.only_when_named : engine.name() == wanted.engine;
    if (!asked) continue;
    const Baked baked = engine.bake(problem, request.device).baked;
    Verdict verdict = engine.judge(baked, request.device);
    if (can(verdict)) {
      store::Recording recording;
      try {
        engine.compile(baked, request.device);
        verdict = keeps_no_plans();
      } catch (const Unsupported& refusal) {
        verdict = refused_to_compile(refusal.what());
      }
      std::vector<store::Recorded> blobs = recording.take();
      if (!blobs.empty()) {
        out.push_back({engine.name(), std::move(blobs)});
        continue;
      }
    }
    refused.verdicts.push_back({engine.name(), std::move(verdict), candidate.only_when_named, {}});
  }
  if (out.empty()) throw Unsupported(refusal_text(refused));
  return out;
}

std::string Planner::refuse_stored(const std::string& engine,
                                   const std::string& environment) const {
  const Engine* const found = find_engine(engine);
  return found == nullptr ? "this Fovea has no engine " + engine
                          : found->refuse_stored(environment);
}

}  // namespace fovea

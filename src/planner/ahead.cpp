// Plans for other processes: compiled now, collected from the store, run by nobody here.
#include "base/error.h"
#include "planner/best.h"
#include "planner/planner.h"

namespace fovea {
namespace {

Verdict keeps_no_plans() {
  const Reason reason{"keeps_no_plans", "", "its plans live in their process only",
                      "they need not be compiled ahead"};
  return {Answer::No, {reason}, 0, ""};
}

// The blobs that it took; none where it could not, and then `verdict` says why.
std::vector<store::Recorded> compile_one(const Engine& engine, const Problem& problem,
                                         const Device& device, Verdict& verdict) {
  if (!engine.keeps_plans()) {
    verdict = keeps_no_plans();
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

}  // namespace fovea

// From a Problem to a plan: asks the engines in order, collects their reasons, builds the plan of
// the best that can run it, and keeps it. Only this room and tests call engines. A training pair is
// two Problems that name each other and are chosen for together.
#pragma once

#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attention/engine.h"
#include "planner/cache.h"
#include "planner/explanation.h"
#include "planner/memo.h"
#include "store/store.h"

namespace fovea {

// A plan for one Problem: the shared plan with this Problem's own literals.
struct PlannedCall {
  std::shared_ptr<const Plan> plan;
  std::string engine;
  std::vector<float> literals;
};

// What an engine put into the store, or found there, to compile one Problem.
struct CompiledAhead {
  std::string engine;
  std::vector<store::Recorded> blobs;
};

struct Candidate {
  const Engine* engine = nullptr;
  bool only_when_named = false;
};

// Safe from many threads.
class Planner {
 public:
  explicit Planner(std::vector<Candidate> candidates) : candidates_(std::move(candidates)) {}

  // Judges the values that make_plan() would compile, and builds nothing; with `prove` by building,
  // if an engine can.
  std::shared_ptr<const Explanation> explain(const Problem& problem, const PlanRequest& request,
                                             bool prove);

  // From the cache or built. An engine that refuses to compile after all is noted and the next one
  // tried. Throws Unsupported with every engine's reasons.
  PlannedCall make_plan(const Problem& problem, const PlanRequest& request);

  // For bundles: compiles with every engine that can and that keeps plans in files (or the one that
  // is named), past the cache. Throws Unsupported if there is none.
  std::vector<CompiledAhead> compile_ahead(const Problem& problem, const PlanRequest& request);

  // Why this process cannot use plans that this engine stored with this environment; empty: it can.
  std::string refuse_stored(const std::string& engine, const std::string& environment) const;

  PlanCache& cache() { return cache_; }
  std::vector<std::string> engine_names() const;

  // One more engine, for tests: before anyone else asks for anything.
  void add(const Candidate& candidate) { candidates_.push_back(candidate); }

 private:
  struct NamedEngine {
    std::string name;  // empty: any
    bool from_environment = false;
  };
  using JudgedProblems = std::vector<std::shared_ptr<const JudgedProblem>>;  // by candidate
  struct PairChoice {
    Choice own;
    std::optional<Choice> partner;
  };

  NamedEngine named_engine(const PlanRequest& request) const;
  JudgedProblems judge(const Problem& problem, const Device& device, bool prove);
  Choice choose(const Problem& problem, const NamedEngine& named, const JudgedProblems& own,
                const JudgedProblems* partner) const;
  PairChoice choose_pair(const Problem& problem, const PlanRequest& request,
                         const NamedEngine& named, bool prove);
  // Remembered, or made now; a partner's is remembered with it.
  Choice choice_of(const Problem& problem, const PlanRequest& request, const NamedEngine& named);
  PlannedCall build(const Problem& problem, const PlanRequest& request, const Choice& choice);
  // Builds the backward of a training pair in another thread while the forward is built; the
  // future's destructor waits for it. Nothing if the engine does not gain by it.
  std::future<void> build_meanwhile(std::shared_ptr<const Problem> backward,
                                    const PlanRequest& request, const Choice& choice);
  const Engine* find_engine(const std::string& name) const;  // null: there is none of that name
  const Engine& engine(const std::string& name) const;
  void note_refusal(PlanKey key, const std::string& text);
  std::string noted_refusal(const PlanKey& key);

  std::vector<Candidate> candidates_;
  PlanCache cache_;
  ChoiceMemo memo_;
  std::atomic<bool> has_refusals_{false};  // rare: most judgements need not look
  std::mutex refusals_mutex_;
  std::vector<std::pair<PlanKey, std::string>> refusals_;  // oldest first, bounded
};

// The planner of the process, with all engines.
Planner& planner();

}  // namespace fovea

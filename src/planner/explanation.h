// A question to the planner, every engine's verdict, the choice among them, and all of it as a
// table for people and as JSON for programs.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attention/engine.h"

namespace fovea {

struct PlanRequest {
  Device device;
  std::string engine;  // empty: FOVEA_ENGINE, else the best that can; the reference only by name
  std::shared_ptr<const Problem> partner{};  // the other direction of a training pair; null: none
  // False while a stream is captured: a plan that is not cached is a DeviceError then.
  bool may_build = true;
};

// What one engine says.
struct EngineVerdict {
  std::string engine;
  Verdict verdict;
  bool only_when_named = false;
  std::optional<Verdict> partner{};  // on the other direction, if there is one
};
struct Explanation {
  std::vector<EngineVerdict> verdicts;  // in order of choice
  std::string chosen;                   // empty: none
  std::string why;                      // one sentence

  const EngineVerdict* find(const std::string& engine) const;
};
std::string refusal_text(const Explanation& explanation);  // `why` and every engine's reasons
std::string to_table(const Problem& problem, const PlanRequest& request, const Explanation&);
std::string to_json(const Problem& problem, const PlanRequest& request, const Explanation&);

bool can(const Verdict& verdict);

// Both directions must run on one engine: its own random numbers cannot be drawn again by another.
bool is_pinned(const Problem& problem);

// From the verdicts to a choice and the sentence that explains it. Of a training pair each
// direction gets the engine that is fastest at it, if times are known and the pair may be split;
// else one engine runs both.
void choose_best(Explanation& explanation, const Problem& problem);
void choose_named(Explanation& explanation, const Problem& problem, const std::string& engine,
                  bool from_environment);

}  // namespace fovea

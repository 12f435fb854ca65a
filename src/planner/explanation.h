// What the planner was asked, and what it thinks of it: every engine's verdict and the choice among
// them, as a table for people and as JSON for programs.
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
  bool may_build =
      true;  // false: a plan that is not cached is a DeviceError (a stream is captured)
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

}  // namespace fovea

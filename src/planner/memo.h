// What was decided before for a Problem (with its partner), a device and an engine's name: the
// explanation, what the chosen engine compiles, and the plan as long as the cache holds it. Keys
// are compared in full. When it is full it forgets everything, which costs one judgement per
// Problem.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "planner/explanation.h"

namespace fovea {

struct ChoiceKey {
  const Problem& problem;
  const Device& device;
  const std::string& engine;  // empty: any
  const std::shared_ptr<const Problem>& partner;
};

// A Problem as one engine would run it.
struct JudgedProblem {
  Baking baking;
  Judged judged;
};

struct Choice {
  std::shared_ptr<const Explanation> explanation;
  std::shared_ptr<const JudgedProblem> chosen;  // by the chosen engine; null: none was
  std::weak_ptr<const Plan> plan{};             // empty until one was made
};

class ChoiceMemo {
 public:
  std::optional<Choice> find(const ChoiceKey& key) const;
  void remember(const ChoiceKey& key, Choice choice);
  void clear();

 private:
  struct RememberedChoice {
    Problem problem;
    Device device;
    std::string engine;
    std::shared_ptr<const Problem> partner;
    Choice choice;
  };
  using Entries = std::unordered_multimap<std::uint64_t, RememberedChoice>;
  static Entries::const_iterator find(const Entries& entries, std::uint64_t hash,
                                      const ChoiceKey& key);

  mutable std::mutex mutex_;
  Entries entries_;
};

}  // namespace fovea

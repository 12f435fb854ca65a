#include "planner/best.h"

namespace fovea {
namespace {

bool can_partner(const EngineVerdict& one) { return !one.partner || can(*one.partner); }

std::string partner_name(const Problem& problem) {
  return problem.direction == Direction::Forward ? "backward" : "forward";
}

// Seconds of all that the engine would run; 0: unknown.
double cost_of(const EngineVerdict& one, bool with_partner) {
  if (!with_partner || !one.partner) return one.verdict.cost;
  const bool known = one.verdict.cost > 0 && one.partner->cost > 0;
  return known ? one.verdict.cost + one.partner->cost : 0;
}

// The first that can, or a later one that is known to be faster.
const EngineVerdict* best(const std::vector<EngineVerdict>& verdicts, bool with_partner) {
  const EngineVerdict* chosen = nullptr;
  for (const EngineVerdict& one : verdicts) {
    if (one.only_when_named || !can(one.verdict)) continue;
    if (with_partner && !can_partner(one)) continue;
    const double cost = cost_of(one, with_partner);
    const double before = chosen == nullptr ? 0 : cost_of(*chosen, with_partner);
    if (chosen == nullptr || (cost > 0 && before > 0 && cost < before)) chosen = &one;
  }
  return chosen;
}

// The best for the other direction alone.
const EngineVerdict* best_partner(const std::vector<EngineVerdict>& verdicts) {
  const EngineVerdict* chosen = nullptr;
  for (const EngineVerdict& one : verdicts) {
    if (one.only_when_named || !one.partner || !can(*one.partner)) continue;
    const double before = chosen == nullptr ? 0 : chosen->partner->cost;
    if (chosen == nullptr || (one.partner->cost > 0 && before > 0 && one.partner->cost < before)) {
      chosen = &one;
    }
  }
  return chosen;
}

// Two engines can share a pair, since a backward takes o and lse as they are. They do if both
// times are known and one is faster at this direction than the engine that is best at both.
const EngineVerdict* faster_alone(const std::vector<EngineVerdict>& verdicts,
                                  const EngineVerdict& together) {
  const EngineVerdict* const alone = best(verdicts, false);
  const bool faster = alone != &together && alone->verdict.cost > 0 &&
                      alone->verdict.cost < together.verdict.cost && together.partner->cost > 0;
  return faster ? alone : nullptr;
}

void explain_none(Explanation& explanation, bool pair) {
  const std::string what = pair ? "both directions of this pair" : "this";
  explanation.why = "no engine can run " + what;
  for (const EngineVerdict& one : explanation.verdicts) {
    if (!one.only_when_named || !can(one.verdict) || (pair && !can_partner(one))) continue;
    explanation.why = "no fast engine can run " + what + "; " + one.engine +
                      " can, but runs only when it is named: engine=" + one.engine +
                      " or FOVEA_ENGINE=" + one.engine;
  }
}

}  // namespace

bool can(const Verdict& verdict) { return verdict.answer != Answer::No; }

bool is_pinned(const Problem& problem) { return problem.rng == Rng::Engine && problem.dropout > 0; }

void choose_best(Explanation& explanation, const Problem& problem) {
  const bool pair = !explanation.verdicts.empty() && explanation.verdicts.front().partner;
  const EngineVerdict* const together = best(explanation.verdicts, pair);
  const bool shared = pair && !is_pinned(problem);
  if (together != nullptr && shared) {
    const EngineVerdict* const alone = faster_alone(explanation.verdicts, *together);
    const EngineVerdict& chosen = alone != nullptr ? *alone : *together;
    const EngineVerdict& other = *best_partner(explanation.verdicts);
    if (&chosen != &other && chosen.verdict.cost > 0 && other.partner->cost > 0) {
      explanation.chosen = chosen.engine;
      explanation.why = chosen.engine + " is the fastest of those that can; at the " +
                        partner_name(problem) + " of the pair " + other.engine + " is";
      return;
    }
  }
  if (together != nullptr) {
    const std::string of = pair ? " is the fastest of those that can run both directions"
                                : " is the fastest of those that can";
    explanation.chosen = together->engine;
    explanation.why = together->engine + of;
    return;
  }
  const EngineVerdict* const alone = shared ? best(explanation.verdicts, false) : nullptr;
  if (alone == nullptr) return explain_none(explanation, pair && is_pinned(problem));
  explanation.chosen = alone->engine;
  explanation.why = alone->engine + " is the fastest of those that can; none of them can run the " +
                    partner_name(problem) + " of the pair too";
}

void choose_named(Explanation& explanation, const Problem& problem, const std::string& engine,
                  bool from_environment) {
  const EngineVerdict& one = *explanation.find(engine);
  explanation.why = engine + (from_environment ? " is named by FOVEA_ENGINE" : " is named");
  if (!can(one.verdict)) {
    explanation.why += ", but cannot run this";
  } else if (can_partner(one)) {
    explanation.chosen = engine;
  } else if (is_pinned(problem)) {
    explanation.why += ", but cannot run the " + partner_name(problem) +
                       " of the pair, which must use the same random numbers";
  } else {
    explanation.chosen = engine;
    explanation.why += "; it cannot run the " + partner_name(problem) + " of the pair";
  }
}

}  // namespace fovea

#include "planner/explanation.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "attention/problem_text.h"
#include "base/words.h"

namespace fovea {
namespace {

std::string answer_name(Answer answer) {
  switch (answer) {
    case Answer::Proven: return "proven";
    case Answer::Expected: return "expected";
    case Answer::No: return "no";
  }
  return "";
}

std::string device_text(const Device& device) {
  std::string out =
      device.kind == DeviceKind::Cpu ? "cpu" : "cuda:" + std::to_string(device.ordinal);
  if (device.described) out = "described";
  out += ", " + device.name;
  if (device.kind == DeviceKind::Cuda) return out + ", sm_" + std::to_string(device.sm);
  return out + " (" + joined(device.isa) + "; " + std::to_string(device.threads) + " threads)";
}

std::string milliseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g ms", seconds * 1e3);
  return text;
}

// The lines of an engine's last column: why not, or what there is to know.
std::vector<std::string> remarks(const EngineVerdict& one, bool chosen) {
  std::vector<std::string> lines;
  for (const Reason& reason : one.verdict.reasons) lines.push_back(describe(reason));
  std::string line = chosen ? "chosen" : "";
  const auto add = [&](const std::string& text) { line += (line.empty() ? "" : "; ") + text; };
  if (one.verdict.cost > 0) add("about " + milliseconds(one.verdict.cost));
  if (one.partner && one.partner->cost > 0) {
    add("the other direction about " + milliseconds(one.partner->cost));
  }
  if (one.only_when_named && !chosen && one.verdict.answer != Answer::No) {
    add("runs only when it is named");
  }
  if (!one.verdict.note.empty()) add(one.verdict.note);
  if (!line.empty()) lines.push_back(line);
  if (one.partner && one.partner->answer == Answer::No) {
    for (const Reason& reason : one.partner->reasons) {
      lines.push_back("not the other direction: " + describe(reason));
    }
  }
  if (lines.empty()) lines.emplace_back("");
  return lines;
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

// `engine   verdict   remark`, one row per remark.
std::string rows(const Explanation& explanation, const std::string& indent) {
  std::size_t width = std::string("engine").size();
  for (const EngineVerdict& one : explanation.verdicts) width = std::max(width, one.engine.size());
  constexpr std::size_t verdict_width = 8;  // "expected"
  std::string out =
      indent + padded("engine", width) + "  " + padded("verdict", verdict_width) + "  why\n";
  for (const EngineVerdict& one : explanation.verdicts) {
    std::string name = one.engine, answer = answer_name(one.verdict.answer);
    for (const std::string& remark : remarks(one, one.engine == explanation.chosen)) {
      std::string row =
          indent + padded(name, width) + "  " + padded(answer, verdict_width) + "  " + remark;
      row.erase(row.find_last_not_of(' ') + 1);
      out += row + "\n";
      name.clear();
      answer.clear();
    }
  }
  return out;
}

nlohmann::ordered_json to_json_value(const std::vector<Reason>& all) {
  nlohmann::ordered_json reasons = nlohmann::ordered_json::array();
  for (const Reason& reason : all) {
    reasons.push_back({{"code", reason.code},
                       {"limit", reason.limit},
                       {"got", reason.got},
                       {"advice", reason.advice},
                       {"text", describe(reason)}});
  }
  return reasons;
}

nlohmann::ordered_json to_json_value(const EngineVerdict& one) {
  nlohmann::ordered_json out{{"engine", one.engine},
                             {"verdict", answer_name(one.verdict.answer)},
                             {"reasons", to_json_value(one.verdict.reasons)},
                             {"note", one.verdict.note},
                             {"only_when_named", one.only_when_named}};
  out["cost_seconds"] = one.verdict.cost > 0 ? nlohmann::ordered_json(one.verdict.cost) : nullptr;
  if (one.partner) {
    out["partner"] = {{"verdict", answer_name(one.partner->answer)},
                      {"reasons", to_json_value(one.partner->reasons)}};
    out["partner"]["cost_seconds"] =
        one.partner->cost > 0 ? nlohmann::ordered_json(one.partner->cost) : nullptr;
  }
  return out;
}

}  // namespace

const EngineVerdict* Explanation::find(const std::string& engine) const {
  const auto at = std::ranges::find(verdicts, engine, &EngineVerdict::engine);
  return at == verdicts.end() ? nullptr : &*at;
}

std::string refusal_text(const Explanation& explanation) {
  return explanation.why + "\n" + rows(explanation, "  ");
}

std::string to_table(const Problem& problem, const PlanRequest& request,
                     const Explanation& explanation) {
  const bool none = explanation.chosen.empty();
  const std::string pair = request.partner ? "\npair     with " + print(*request.partner) : "";
  return "problem  " + print(problem) + pair + "\ndevice   " + device_text(request.device) +
         "\nengine   " + (none ? "none" : explanation.chosen) + ": " + explanation.why + "\n\n" +
         rows(explanation, "");
}

std::string to_json(const Problem& problem, const PlanRequest& request,
                    const Explanation& explanation) {
  nlohmann::ordered_json engines = nlohmann::ordered_json::array();
  for (const EngineVerdict& one : explanation.verdicts) engines.push_back(to_json_value(one));
  const Device& device = request.device;
  nlohmann::ordered_json out{
      {"problem", print(problem)},
      {"device",
       {{"kind", device.kind == DeviceKind::Cpu ? "cpu" : "cuda"},
        {"name", device.name},
        {"described", device.described},
        {"sm", device.sm},
        {"isa", device.isa},
        {"threads", device.threads}}},
  };
  if (request.partner) out["partner"] = print(*request.partner);
  out["chosen"] = explanation.chosen.empty() ? nlohmann::ordered_json(nullptr)
                                             : nlohmann::ordered_json(explanation.chosen);
  out["why"] = explanation.why;
  out["engines"] = std::move(engines);
  return out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

namespace {

bool can_partner(const EngineVerdict& one) { return !one.partner || can(*one.partner); }

std::string partner_name(const Problem& problem) {
  return problem.direction == Direction::Forward ? "backward" : "forward";
}

// What an engine would run: the problem, the other direction of its pair, or both.
enum class PairPart : std::uint8_t { Own, Partner, Both };

// Seconds of it; nothing if the engine cannot run it, 0 if the time is not known.
std::optional<double> cost_of(const EngineVerdict& one, PairPart part) {
  if ((part != PairPart::Partner && !can(one.verdict)) ||
      (part != PairPart::Own && !can_partner(one))) {
    return std::nullopt;
  }
  if (part == PairPart::Own || !one.partner) return one.verdict.cost;
  if (part == PairPart::Partner) return one.partner->cost;
  const bool known = one.verdict.cost > 0 && one.partner->cost > 0;
  return known ? one.verdict.cost + one.partner->cost : 0;
}

// The first that can, or a later one that is known to be faster.
const EngineVerdict* best(const std::vector<EngineVerdict>& verdicts, PairPart part) {
  const EngineVerdict* chosen = nullptr;
  double before = 0;
  for (const EngineVerdict& one : verdicts) {
    const auto cost = one.only_when_named ? std::nullopt : cost_of(one, part);
    if (!cost || (chosen != nullptr && !(*cost > 0 && before > 0 && *cost < before))) continue;
    chosen = &one;
    before = *cost;
  }
  return chosen;
}

// Two engines can share a pair, since a backward takes o and lse as they are. They do if both
// times are known and one is faster at this direction than the engine that is best at both.
const EngineVerdict* faster_alone(const std::vector<EngineVerdict>& verdicts,
                                  const EngineVerdict& together) {
  const EngineVerdict* const alone = best(verdicts, PairPart::Own);
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
  const EngineVerdict* const together =
      best(explanation.verdicts, pair ? PairPart::Both : PairPart::Own);
  const bool shared = pair && !is_pinned(problem);
  if (together != nullptr && shared) {
    const EngineVerdict* const alone = faster_alone(explanation.verdicts, *together);
    const EngineVerdict& chosen = alone != nullptr ? *alone : *together;
    const EngineVerdict& other = *best(explanation.verdicts, PairPart::Partner);
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
  const EngineVerdict* const alone = shared ? best(explanation.verdicts, PairPart::Own) : nullptr;
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

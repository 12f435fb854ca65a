// Can it run, where, and why not: the questions about plans that build none.
#include <cstddef>

#include "base/error.h"
#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/plan_request.h"
#include "cuda/find_device.h"

using namespace fovea;
using namespace fovea::capi;

namespace fovea::capi {

PlanWords to_words(const fovea_problem_s& problem, const fovea_plan_options* options) {
  if (options == nullptr) return {"", "cpu", problem.partner};
  constexpr std::size_t first_size = offsetof(fovea_plan_options, partner);
  const auto known = read_struct(options, {"options", "fovea_plan_options"}, first_size);
  const auto& partner = known.partner == nullptr ? problem.partner : known.partner->problem;
  if (partner && partner->direction == problem.problem->direction) {
    const char* const both = partner->direction == Direction::Forward ? "forward" : "backward";
    throw InvalidArgument("options.partner is a " + std::string(both) +
                          ", as is the problem; a pair is a forward and a backward");
  }
  return {known.engine == nullptr ? "" : known.engine,
          known.device == nullptr ? "cpu" : known.device, partner};
}

PlanRequest to_request(const PlanWords& words) {
  return {words.device == "cpu" ? cpu_device() : cuda::find_device(std::string(words.device)),
          std::string(words.engine), words.partner};
}

}  // namespace fovea::capi

namespace {

fovea_answer to_answer(const Explanation& explanation) {
  if (explanation.chosen.empty()) return FOVEA_NO;
  switch (explanation.find(explanation.chosen)->verdict.answer) {
    case Answer::Proven: return FOVEA_PROVEN;
    case Answer::Expected: return FOVEA_EXPECTED;
    case Answer::No: return FOVEA_NO;
  }
  throw InternalError("a verdict of no kind");
}

}  // namespace

fovea_status fovea_supported(fovea_problem problem, const fovea_plan_options* options,
                             fovea_answer* answer, fovea_report* report) {
  return guarded([&] {
    if (report != nullptr) *report = nullptr;
    const fovea_problem_s& asked = content(problem, "problem");
    need(answer, "answer");
    const auto explanation =
        explain(*asked.problem, to_request(to_words(asked, options)), /*prove=*/false);
    if (report != nullptr) {
      *report = new_report(explanation->chosen.empty() ? refusal_text(*explanation)
                                                       : explanation->chosen);
    }
    *answer = to_answer(*explanation);
  });
}

fovea_status fovea_explain(fovea_problem problem, const fovea_plan_options* options, uint32_t flags,
                           fovea_report* report) {
  return guarded([&] {
    need(report, "report");
    *report = nullptr;
    const fovea_problem_s& asked = content(problem, "problem");
    constexpr std::uint32_t known = FOVEA_EXPLAIN_JSON | FOVEA_EXPLAIN_PROVE;
    if ((flags & ~known) != 0) {
      throw InvalidArgument("flags is " + std::to_string(flags) +
                            "; it may have FOVEA_EXPLAIN_JSON (1) and FOVEA_EXPLAIN_PROVE (2)");
    }
    const PlanRequest request = to_request(to_words(asked, options));
    const auto explanation = explain(*asked.problem, request, (flags & FOVEA_EXPLAIN_PROVE) != 0);
    *report = new_report((flags & FOVEA_EXPLAIN_JSON) != 0
                             ? to_json(*asked.problem, request, *explanation)
                             : to_table(*asked.problem, request, *explanation));
  });
}

const char* fovea_engines() {
  static const std::string& names = *new std::string([] {
    std::string out;
    for (const std::string& name : planner().engine_names()) out += (out.empty() ? "" : " ") + name;
    return out;
  }());
  return names.c_str();
}

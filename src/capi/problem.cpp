// Problems: made from a struct or a line, printed, compared, described.
#include "attention/problem.h"

#include <cstddef>
#include <iterator>
#include <sstream>

#include "attention/gradients.h"
#include "attention/problem_text.h"
#include "attention/tensor_strides.h"
#include "base/spelling.h"
#include "base/words.h"
#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/problem_config.h"

using namespace fovea;
using namespace fovea::capi;

fovea_problem_s::fovea_problem_s(Problem made)
    : problem(std::make_shared<const Problem>(std::move(made))),
      program(problem->program),
      tensor_strides(tensor_strides_text(*problem)) {
  if (problem->direction == Direction::Backward) grads = wanted_gradients(*problem);
}

namespace {
// The struct has grown since its first version.
constexpr std::size_t first_size = offsetof(fovea_problem_config, tensor_strides);
}  // namespace

fovea_status fovea_problem_create(const fovea_problem_config* config, fovea_problem* problem) {
  return guarded([&] {
    need(problem, "problem");
    *problem = nullptr;
    const auto known = read_struct(config, {"config", "fovea_problem_config"}, first_size);
    *problem = new fovea_problem_s(to_problem(known));
  });
}

fovea_status fovea_problem_parse(const char* line, fovea_problem* problem,
                                 fovea_problem* backward) {
  return guarded([&] {
    need(problem, "problem");
    *problem = nullptr;
    if (backward != nullptr) *backward = nullptr;
    need(line, "line");
    ProblemLine parsed = parse_problem_line(line);
    const bool both = parsed.forward && parsed.backward;
    auto first = std::make_unique<fovea_problem_s>(
        std::move(parsed.forward ? *parsed.forward : *parsed.backward));
    if (both) {
      auto second = std::make_unique<fovea_problem_s>(std::move(*parsed.backward));
      first->partner = second->problem;
      second->partner = first->problem;
      if (backward != nullptr) *backward = second.release();
    }
    *problem = first.release();
  });
}

void fovea_problem_destroy(fovea_problem problem) { delete problem; }

fovea_status fovea_line_value(const char* line, const char* key, fovea_report* value) {
  return guarded([&] {
    need(value, "value");
    *value = nullptr;
    need(line, "line");
    need(key, "key");
    std::string found;
    for (Word& word : split_words(line)) {
      if (word.key != key) continue;
      found = std::move(word.value);
      break;
    }
    *value = new_report(std::move(found));
  });
}

fovea_status fovea_suggest(const char* word, const char* candidates, fovea_report* text) {
  return guarded([&] {
    need(text, "text");
    *text = nullptr;
    need(word, "word");
    need(candidates, "candidates");
    std::istringstream list(candidates);
    const std::vector<std::string> names(std::istream_iterator<std::string>(list), {});
    *text = new_report(did_you_mean(word, names));
  });
}

fovea_status fovea_problem_program(fovea_problem problem, fovea_program* program) {
  return guarded([&] {
    need(program, "program");
    *program = nullptr;
    *program = new fovea_program_s(content(problem, "problem").program);
  });
}

fovea_status fovea_problem_print(fovea_problem problem, fovea_report* report) {
  return guarded([&] {
    need(report, "report");
    *report = nullptr;
    *report = new_report(print(*content(problem, "problem").problem));
  });
}

int fovea_problem_equal(fovea_problem a, fovea_problem b) {
  return a != nullptr && b != nullptr && *a->problem == *b->problem ? 1 : 0;
}

fovea_status fovea_problem_describe(fovea_problem problem, fovea_problem_config* config) {
  return guarded([&] {
    fovea_problem_s& described = content(problem, "problem");
    fovea_problem_config filled{};
    describe(*described.problem, filled);
    filled.program = &described.program;
    if (described.problem->direction == Direction::Backward) {
      filled.grads = described.grads.c_str();
    }
    if (!described.tensor_strides.empty()) {
      filled.tensor_strides = described.tensor_strides.c_str();
    }
    write_struct(config, filled, {"config", "fovea_problem_config"}, first_size);
  });
}

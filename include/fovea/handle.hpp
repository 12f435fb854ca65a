// The objects of the C interface as C++ values that clean up after themselves, and its statuses as
// exceptions with the same texts.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "fovea/fovea.h"
#include "fovea/trace.hpp"

// A namespace of its own behind `fovea`, so that these names never meet the library's inner ones at
// link time.
namespace fovea {
inline namespace api {

class Error : public std::runtime_error {
 public:
  Error(fovea_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  fovea_status status() const { return status_; }

 private:
  fovea_status status_;
};

// Throws what the last call of this thread said.
inline void check(fovea_status status) {
  if (status != FOVEA_OK) throw Error(status, fovea_last_error());
}

template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* handle) const {
    destroy(handle);
  }
};
template <class Handle, auto destroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<destroy>>;

class Report {
 public:
  explicit Report(fovea_report report) : handle_(report) {}
  std::string text() const { return fovea_report_text(handle_.get()); }

 private:
  Owned<fovea_report, fovea_report_destroy> handle_;
};

// Calls a function whose last argument is a report, and gives its text.
template <class Function, class... Arguments>
std::string report_of(Function function, Arguments... arguments) {
  fovea_report report = nullptr;
  check(function(arguments..., &report));
  return Report(report).text();
}

// What stands after `key=` in a line, without quotes; empty if it has no such key.
inline std::string line_value(const std::string& line, const char* key) {
  return report_of(fovea_line_value, line.c_str(), key);
}

// "; did you mean 'x'?" to append to an error, or nothing if no candidate is near to the word.
// Candidates are separated by spaces.
inline std::string did_you_mean(const std::string& word, const std::string& candidates) {
  return report_of(fovea_suggest, word.c_str(), candidates.c_str());
}

// Formulas with what they capture; immutable.
class Program {
 public:
  explicit Program(const std::string& line) {
    fovea_program made = nullptr;
    check(fovea_program_parse(line.c_str(), &made));
    handle_.reset(made, fovea_program_destroy);
  }
  template <std::same_as<Formula>... Formulas>
  explicit Program(const Formula& first, const Formulas&... others)
      : Program(program(first, others...)) {}

  fovea_program get() const { return handle_.get(); }
  std::string line() const { return report_of(fovea_program_print, get(), FOVEA_TEXT_CANONICAL); }
  // The derivative by "score" or by a captured name.
  std::string derivative(const std::string& by) const {
    return report_of(fovea_program_differentiate, get(), by.c_str(), FOVEA_TEXT_CANONICAL);
  }
  friend bool operator==(const Program& a, const Program& b) {
    return fovea_program_equal(a.get(), b.get()) == 1;
  }

 private:
  friend class Problem;
  explicit Program(fovea_program handle) : handle_(handle, fovea_program_destroy) {}
  std::shared_ptr<std::remove_pointer_t<fovea_program>> handle_;
};

// Which attention; immutable.
class Problem {
 public:
  explicit Problem(const fovea_problem_config& config) {
    fovea_problem made = nullptr;
    check(fovea_problem_create(&config, &made));
    handle_.reset(made, fovea_problem_destroy);
  }
  // From a problem line; of direction=both, the forward.
  explicit Problem(const std::string& line) : Problem(parse(line).first) {}
  // A line with direction=both has a second one, the backward.
  static std::pair<Problem, std::optional<Problem>> parse(const std::string& line) {
    fovea_problem first = nullptr, second = nullptr;
    check(fovea_problem_parse(line.c_str(), &first, &second));
    std::pair<Problem, std::optional<Problem>> both{Problem(first), std::nullopt};
    if (second != nullptr) both.second = Problem(second);
    return both;
  }

  fovea_problem get() const { return handle_.get(); }
  std::string line() const { return report_of(fovea_problem_print, get()); }
  Program program() const {
    fovea_program made = nullptr;
    check(fovea_problem_program(get(), &made));
    return Program(made);
  }
  friend bool operator==(const Problem& a, const Problem& b) {
    return fovea_problem_equal(a.get(), b.get()) == 1;
  }

 private:
  explicit Problem(fovea_problem handle) : handle_(handle, fovea_problem_destroy) {}
  std::shared_ptr<std::remove_pointer_t<fovea_problem>> handle_;
};

// Where to run and by what; empty: Fovea's choice.
struct Where {
  std::string engine;
  std::string device;
  std::optional<Problem> partner{};  // of a training pair: one engine for both

  fovea_plan_options options() const {
    return {sizeof(fovea_plan_options), engine.empty() ? nullptr : engine.c_str(),
            device.empty() ? nullptr : device.c_str(), partner ? partner->get() : nullptr};
  }
};

struct Support {
  fovea_answer answer = FOVEA_NO;
  std::string text;  // the engine, or every engine's reasons
  explicit operator bool() const { return answer != FOVEA_NO; }
};
inline Support supported(const Problem& problem, const Where& where = {}) {
  const fovea_plan_options options = where.options();
  Support support;
  fovea_report report = nullptr;
  check(fovea_supported(problem.get(), &options, &support.answer, &report));
  support.text = Report(report).text();
  return support;
}

// Every engine's verdict, as a table or (FOVEA_EXPLAIN_JSON) as JSON.
inline std::string explain(const Problem& problem, const Where& where = {},
                           std::uint32_t flags = 0) {
  const fovea_plan_options options = where.options();
  return report_of(fovea_explain, problem.get(), &options, flags);
}

class Plan {
 public:
  explicit Plan(const Problem& problem, const Where& where = {}) {
    const fovea_plan_options options = where.options();
    fovea_plan made = nullptr;
    check(fovea_plan_create(problem.get(), &options, &made));
    handle_.reset(made);
  }
  fovea_plan get() const { return handle_.get(); }
  std::string engine() const { return fovea_plan_engine(get()); }
  std::size_t workspace() const {
    std::size_t bytes = 0;
    check(fovea_plan_workspace(get(), nullptr, &bytes));
    return bytes;
  }
  void run(const fovea_bindings& bindings) const { check(fovea_plan_run(get(), &bindings)); }

 private:
  Owned<fovea_plan, fovea_plan_destroy> handle_;
};

// Uses the plans of a file that `fovea compile` wrote, from now on (docs/caching.md).
inline void load_bundle(const std::string& path) { check(fovea_bundle_load(path.c_str())); }

}  // namespace api
}  // namespace fovea

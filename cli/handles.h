// The C interface with owners and exceptions: what the program needs of it and no more. Every call
// of the library in cli/ goes through check(), so that its own error text reaches the user.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "fovea/fovea.h"

namespace fovea::cli {

class LibraryError : public std::runtime_error {
 public:
  LibraryError(fovea_status status, const std::string& text)
      : std::runtime_error(text), status_(status) {}
  fovea_status status() const { return status_; }

 private:
  fovea_status status_;
};

inline void check(fovea_status status) {
  if (status != FOVEA_OK) throw LibraryError(status, fovea_last_error());
}

template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* handle) const {
    destroy(handle);
  }
};
using Program = std::unique_ptr<fovea_program_s, Destroy<fovea_program_destroy>>;
using Problem = std::unique_ptr<fovea_problem_s, Destroy<fovea_problem_destroy>>;
using Plan = std::unique_ptr<fovea_plan_s, Destroy<fovea_plan_destroy>>;
using Report = std::unique_ptr<fovea_report_s, Destroy<fovea_report_destroy>>;

// The text that a call leaves in its last argument: text_of(fovea_doctor) or
// text_of(fovea_program_print, program, form).
template <class Function, class... Arguments>
std::string text_of(Function function, Arguments... arguments) {
  fovea_report report = nullptr;
  check(function(arguments..., &report));
  return fovea_report_text(Report(report).get());
}

inline Program parse_program(const std::string& line) {
  fovea_program program = nullptr;
  check(fovea_program_parse(line.c_str(), &program));
  return Program(program);
}

inline std::string line_value(const std::string& line, const char* key) {
  return text_of(fovea_line_value, line.c_str(), key);
}

}  // namespace fovea::cli

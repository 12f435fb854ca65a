// `fovea diff`: the derivatives of a score modifier as formulas.
#include <iostream>
#include <memory>

#include "handles.h"
#include "line.h"
#include "verb.h"
#include "verbs.h"

namespace fovea::cli {
namespace {

void run(const std::string& text) {
  const std::string line = line_of(text);
  fovea_problem first = nullptr, second = nullptr;
  check(fovea_problem_parse(line.c_str(), &first, &second));
  const Problem problem(first), backward(second);
  fovea_program made = nullptr;
  check(fovea_problem_program(problem.get(), &made));
  const Program program(made);
  const std::string printed = text_of(fovea_program_print, program.get(), FOVEA_TEXT_CANONICAL);
  if (line_value(printed, "mod").empty()) {
    const bool masked = !line_value(printed, "mask").empty();
    throw std::invalid_argument("there is nothing to differentiate: give mod=\"...\"" +
                                std::string(masked ? " (a mask has no derivative)" : ""));
  }
  const char* const by_all = nullptr;
  std::cout << text_of(fovea_program_differentiate, program.get(), by_all, FOVEA_TEXT_INDENTED);
}

}  // namespace

void add_diff(CLI::App& program) {
  Verb verb(program, "diff",
            "Print the derivative of a score modifier by the score and by all it captures");
  const auto line = std::make_shared<std::string>();
  verb.option("LINE", *line, "A formula, or a line: mod=\"...\" scalar=\"...\" tensor=\"...\"")
      .required();
  verb.footer(
      "Examples:\n"
      "  fovea diff 'tanh(score / 20) * 20'\n"
      "  fovea diff 'mod=\"softcap*tanh(score/softcap)\" scalar=\"softcap=30\"'\n"
      "  fovea diff 'mod=\"score + bias[h, q - k + 511]\" tensor=\"bias:f32[H,1023]\"'\n"
      "With bprop=\"...\" (in score and grad) the hand-written derivative is checked against it.");
  verb.callback([line] { run(*line); });
}

}  // namespace fovea::cli

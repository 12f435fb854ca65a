#include <iostream>
#include <memory>

#include "bound_program.h"
#include "line.h"
#include "verbs.h"

namespace fovea::cli {

void add_diff(CLI::App& program) {
  CLI::App* verb = program.add_subcommand(
      "diff", "Print the derivative of a score modifier by the score and by all it captures");
  const auto line = std::make_shared<std::string>();
  verb->add_option("LINE", *line, "A formula, or a line: mod=\"...\" scalar=\"...\" tensor=\"...\"")
      ->required();
  verb->footer(
      "Examples:\n"
      "  fovea diff 'tanh(score / 20) * 20'\n"
      "  fovea diff 'mod=\"softcap*tanh(score/softcap)\" scalar=\"softcap=30\"'\n"
      "  fovea diff 'mod=\"score + bias[h, q - k + 511]\" tensor=\"bias:f32[H,1023]\"'\n"
      "With bprop=\"...\" (in score and grad) the hand-written derivative is checked against it.");
  verb->callback(
      [line] { std::cout << derivative_report(parse_line_or_formula(*line).program); });
}

}  // namespace fovea::cli

#include "planner/run_command.h"

#include "attention/problem_text.h"

namespace fovea {

std::string run_command(const Problem& problem, const std::string& further_words,
                        const std::string& engine) {
  std::string line = print(problem);
  if (!further_words.empty()) line += " " + further_words;
  std::string quoted = "'";
  for (const char c : line) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return "fovea run " + quoted + "' --engine " + engine;
}

}  // namespace fovea

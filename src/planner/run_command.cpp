#include "planner/run_command.h"

namespace fovea {

std::string run_command(const std::string& line, const std::string& engine) {
  std::string quoted;
  for (const char c : line) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return "fovea run '" + quoted + "' --engine " + engine;
}

}  // namespace fovea

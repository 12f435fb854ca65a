// The verbs of the program. Each adds itself to the command line and runs when it is given.
#pragma once

#include <CLI/CLI.hpp>

namespace fovea::cli {

void add_diff(CLI::App& program);
void add_show(CLI::App& program);

}  // namespace fovea::cli

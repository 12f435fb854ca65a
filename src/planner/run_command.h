// A Problem as a command that can be pasted into a shell: what FOVEA_VERBOSE prints.
#pragma once

#include <string>

#include "attention/problem.h"

namespace fovea {

// fovea run '<the line> <further words>' --engine <engine>
std::string run_command(const Problem& problem, const std::string& further_words,
                        const std::string& engine);

}  // namespace fovea

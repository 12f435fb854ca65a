// A problem line as a command that can be pasted into a shell: what FOVEA_VERBOSE prints.
#pragma once

#include <string>

namespace fovea {

// fovea run '<line>' --engine <engine>
std::string run_command(const std::string& line, const std::string& engine);

}  // namespace fovea

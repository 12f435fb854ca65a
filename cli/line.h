// What the verbs do with a line before the library parses it: tell it from a bare formula, and give
// it sizes that suit a picture.
#pragma once

#include <string>

namespace fovea::cli {

// The line, or a bare formula as the mod of one.
std::string line_of(const std::string& line_or_formula);

// The line with h=8 sq=256 where it has none.
std::string with_sizes_to_show(const std::string& line);

}  // namespace fovea::cli

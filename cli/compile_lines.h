// The problem lines that `fovea compile` reads: one per line, comments with #, each checked before
// anything is compiled.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace fovea::cli {

struct CompileLine {
  std::string place;  // "lines.txt:12"
  std::string text;
};

// `path` may be - for standard input. Throws LibraryError or std::invalid_argument with the place
// of the first line that is none.
std::vector<CompileLine> read_compile_lines(const std::string& path);

}  // namespace fovea::cli

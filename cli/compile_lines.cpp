#include "compile_lines.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>

#include "handles.h"

namespace fovea::cli {
namespace {

std::vector<CompileLine> split(std::istream& in, const std::string& name) {
  std::vector<CompileLine> out;
  std::size_t number = 0;
  for (std::string text; std::getline(in, text);) {
    ++number;
    const std::size_t first = text.find_first_not_of(" \t\r");
    if (first == std::string::npos || text[first] == '#') continue;
    const std::size_t last = text.find_last_not_of(" \t\r");
    out.push_back({name + ":" + std::to_string(number), text.substr(first, last - first + 1)});
  }
  return out;
}

void check_line(const CompileLine& line) {
  fovea_problem first = nullptr, second = nullptr;
  const fovea_status status = fovea_problem_parse(line.text.c_str(), &first, &second);
  const Problem problem(first), backward(second);
  if (status != FOVEA_OK) throw LibraryError(status, line.place + ": " + fovea_last_error());
}

}  // namespace

std::vector<CompileLine> read_compile_lines(const std::string& path) {
  std::vector<CompileLine> lines;
  if (path == "-") {
    lines = split(std::cin, "standard input");
  } else {
    std::ifstream in(path);
    if (!in) {
      throw std::invalid_argument(path + ": cannot be opened: " + std::strerror(errno));
    }
    lines = split(in, path);
    if (in.bad()) throw std::invalid_argument(path + ": cannot be read");
  }
  if (lines.empty()) throw std::invalid_argument(path + ": there is no problem line in it");
  for (const CompileLine& line : lines) check_line(line);
  return lines;
}

}  // namespace fovea::cli

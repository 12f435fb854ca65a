// The list of problems that every engine is held to: tests/conformance/problems.txt.
#pragma once

#include <iosfwd>
#include <set>
#include <string>
#include <vector>

#include "cli/check/captured.h"

namespace fovea::conformance {

struct Case {
  int number = 0;  // of its line in the file
  std::string line;
  cli::DataOptions data;
  std::string directives;  // as written, for messages: "#! poison_masked_kv "
};
void PrintTo(const Case& problem, std::ostream* out);

// In the order of the file, which may be another list. Throws std::runtime_error that names the
// line of an unknown directive.
std::vector<Case> read_problems(const std::string& file = "tests/conformance/problems.txt");

// Those that run on the CPU of any machine.
std::vector<std::string> host_engines();

// "pass", or the code of the first reason why this engine refuses the problem or its backward.
std::string verdict(const std::string& engine, const Case& problem,
                    const std::string& device = "cpu");

// How these lines differ from those that are pinned in a file of tests/conformance, where # begins
// a comment; none: they do not.
std::vector<std::string> unpinned(const std::set<std::string>& lines, const std::string& file);

}  // namespace fovea::conformance

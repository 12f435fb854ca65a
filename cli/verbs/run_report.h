// What `fovea run` prints: outputs, times, checks; in full, or as the few lines of --brief.
#pragma once

#include <string>
#include <vector>

#include "cli/check/call.h"
#include "cli/check/compare.h"
#include "cli/check/gradient_check.h"

namespace fovea::cli {

// What --check found.
struct Checks {
  std::vector<Comparison> comparisons;
  std::vector<GradientCheck> differences;
  std::string differences_left_out;  // why; "" if they were not
};
bool all_within(const Checks& checks);

std::string outputs_text(const Results& results);     // shape, type, norm and checksum of each
std::string passes_text(const Results& results);      // engine, time, workspace
std::string complaints_text(const Results& results);  // "" where memory was left alone
std::string checks_text(const Checks& checks);

// Engine, why it, time, error, gradient check: a line each.
std::string brief_text(const std::string& why, const Results& results, const Checks& checks);

}  // namespace fovea::cli

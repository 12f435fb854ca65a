// Problem lines drawn from the whole space of features, small enough for the reference engine.
#pragma once

#include <string>

#include "cli/workload.h"
#include "tests/ir/random.h"

namespace fovea::conformance {

struct RandomLine {
  std::string line;
  cli::Twists twists;
};
RandomLine random_line(test::Random& random);

// What to type to see it again.
std::string run_command(const RandomLine& random);

}  // namespace fovea::conformance

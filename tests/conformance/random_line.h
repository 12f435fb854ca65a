// Problem lines drawn from the whole space of features, small enough for the reference engine.
#pragma once

#include <string>

#include "cli/check/captured.h"
#include "tests/ir/random.h"

namespace fovea::conformance {

struct RandomLine {
  std::string line;
  cli::DataOptions data;
};
RandomLine random_line(test::Random& random);

// The same from two places: types, head dims, features and formulas from `structure`; sizes,
// lengths, offsets, strides and data from `sizes`. Lines of one structure share most of what an
// engine compiles.
RandomLine random_line(test::Random& structure, test::Random& sizes);

// Drawn from what engine cudnn can run, and from just beyond: sizes, layouts, lengths, offsets and
// strides of its kind, with formulas that it has options for.
std::string random_gpu_line(test::Random& random);

// What to type to see it again.
std::string run_command(const RandomLine& random);

}  // namespace fovea::conformance

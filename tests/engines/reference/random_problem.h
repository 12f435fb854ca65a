// Random small problems in f64 with features combined, drawn from a seed.
#pragma once

#include <string>

#include "tests/engines/reference/example.h"

namespace fovea::test {

// Filled with values, every gradient wanted that can be.
Example random_example(std::uint64_t seed);

std::string describe(const Problem& problem);  // for traces

}  // namespace fovea::test

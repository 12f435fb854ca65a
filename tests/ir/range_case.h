// One random question to ir/range, and its answer checked against eval: shared by the tests and by
// the fuzzer.
#pragma once

#include <string>

#include "tests/ir/random_point.h"

namespace fovea::test {

struct RangeCase {
  std::string failure;  // empty: sound
  long samples = 0;     // points at which formula and box were compared
  long decided = 0;     // samples of boxes that are empty or full, or of a narrowed value
};

// Draws a formula, some boxes, captured values, and points inside each box: the value at every
// point must lie in the formula's range over the box.
RangeCase run_range_case(Random& random, int boxes, int points);

}  // namespace fovea::test

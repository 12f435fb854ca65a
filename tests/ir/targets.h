// What fuzzers of the language and the tests that stand in for them in CI both do.
#pragma once

#include <string>
#include <string_view>

#include "tests/ir/random_point.h"

namespace fovea::fuzz {

struct ParseOutcome {
  bool accepted = false;  // as a Program or as a formula
  std::string failure;    // what went wrong; empty if nothing did
};

// Reads an input as a Program and as a formula; whatever is accepted must print, read back as the
// same object, and pass through every later step without a fault. Lets everything but
// InvalidArgument escape: that is a finding too.
ParseOutcome parse_target(std::string_view input);

}  // namespace fovea::fuzz

namespace fovea::test {

struct RangeCase {
  std::string failure;  // empty: sound
  long samples = 0;     // points at which formula and box were compared
  long decided = 0;     // samples of boxes that are empty or full, or of a narrowed value
};

// One random question to ir/range, and its answer checked against eval.
// Draws a formula, some boxes, captured values, and points inside each box: the value at every
// point must lie in the formula's range over the box.
RangeCase run_range_case(Random& random, int boxes, int points);

}  // namespace fovea::test

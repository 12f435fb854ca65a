// What the fuzzer of the parser and the test that stands in for it in CI both do with an input:
// read it as a Program and as a formula, and whatever is accepted must print, read back as the
// same object, and pass through every later step without a fault.
#pragma once

#include <string>
#include <string_view>

namespace fovea::fuzz {

struct ParseOutcome {
  bool accepted = false;  // as a Program or as a formula
  std::string failure;    // what went wrong; empty if nothing did
};

// Lets everything but InvalidArgument escape: that is a finding too.
ParseOutcome parse_target(std::string_view input);

}  // namespace fovea::fuzz

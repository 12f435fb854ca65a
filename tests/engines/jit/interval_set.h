// A set of values of any type, as a test and the code that it compiles both see it: it includes
// nothing.
#pragma once

namespace fovea::test {

struct Set {
  long long i_lo, i_hi;
  float f_lo, f_hi;
  bool nan, can_false, can_true;
};

}  // namespace fovea::test

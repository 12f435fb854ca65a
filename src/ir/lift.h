// Lifts literals out of formulas into scalars, so that formulas that differ in a number share a
// plan. Floats whose value an engine or a rule needs to know stay: 0, 1, -1, 2, 0.5, inf, nan.
// Integers stay, except that Shifts::Lift lifts those that only shift positions (q + 5, k - 1024,
// and k - q - 7 unless it is an index).
#pragma once

#include <vector>

#include "ir/program.h"

namespace fovea::ir {

struct Lifted {
  Program program;              // the declared scalars, then one scalar per literal
  std::vector<float> literals;  // their values, in slot order; integers are small enough for f32
};
enum class Shifts : bool { Stay, Lift };

// A literal also stays if all its users depend on `keep_in` and nothing else, since an engine may
// tabulate those.
Lifted lift_literals(const Program& program, Depends keep_in = Depends::None,
                     Shifts shifts = Shifts::Stay);

}  // namespace fovea::ir

// Lifts float literals out of formulas into scalars, so that formulas that differ in a number share
// a plan. Literals whose value an engine or a rule needs to know stay: 0, 1, -1, 2, 0.5, inf, nan.
#pragma once

#include <vector>

#include "ir/program.h"

namespace fovea::ir {

struct Lifted {
  Program program;              // the declared scalars, then one f32 scalar per literal
  std::vector<float> literals;  // their values, in slot order
};
// Literals that are used only by what depends on `keep_in` and nothing else stay too: an engine may
// tabulate that.
Lifted lift_literals(const Program& program, Depends keep_in = Depends::None);

}  // namespace fovea::ir

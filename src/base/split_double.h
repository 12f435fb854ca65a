// A double as the f32 nearest to it and what that lacks. Formulas are f32 for every engine but the
// reference with f64 tensors, so a number is kept as its f32, and the rest beside it is 0 for all
// others.
#pragma once

#include <cmath>

namespace fovea {

struct SplitDouble {
  float f = 0;
  double rest = 0;
};

// Beyond the range of f32 there is no rest: the number is infinite.
inline SplitDouble split_double(double value) {
  const auto f = static_cast<float>(value);
  return {f, std::isfinite(f) ? value - static_cast<double>(f) : 0};
}

// Exact, and -0 stays -0.
inline double joined_double(float f, double rest) {
  return rest == 0 ? static_cast<double>(f) : static_cast<double>(f) + rest;
}

}  // namespace fovea

// Checks a hand-written bprop formula against the derived derivative at random points.
#pragma once

#include <cstdint>
#include <string>

#include "ir/program.h"

namespace fovea::ir {

struct BpropCheck {
  std::uint64_t seed = 0;  // reproduces it
  int points = 0;          // compared
  double worst_error = 0;  // |hand - derived| / max(1, |derived|); infinite if only one is NaN
  double hand = 0, derived = 0;
  std::string worst_point;  // "score=... grad=... b=0 h=2 q=17 k=3 softcap=..."

  bool agrees(double tolerance = 1e-6) const { return worst_error <= tolerance; }
};

// Evaluates both in double at `points` random points: scores and gradients around 0, positions
// below small sizes, captured values drawn anew at every point. The Program must have a bprop.
BpropCheck check_bprop(const Program& program, std::uint64_t seed, int points = 1000);

}  // namespace fovea::ir

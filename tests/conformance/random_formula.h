// Formulas drawn at random for whole attention problems: every operation, captured tensors of every
// element type, masks of every kind. Smooth in the score, with values of a few units, so that the
// limits on errors mean something; jumps and kinks are at positions only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/ir/random.h"

namespace fovea::conformance {

// Positions that formulas see are below these.
struct Reach {
  std::int64_t b = 1, h = 1, q = 1, k = 1;
};

struct RandomFormula {
  std::string words;               // mod="..." mask="..." tensor="..." scalar="..."
  std::vector<std::string> grads;  // names of captured things that can have one
  bool has_mask = false;
};

RandomFormula random_formula(test::Random& random, const Reach& reach);

}  // namespace fovea::conformance

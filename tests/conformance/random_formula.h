// Formulas drawn at random for whole attention problems: every operation, captured tensors of every
// element type, masks of every kind. Smooth in the score, with values of a few units, so that the
// limits on errors mean something; jumps and kinks are at positions only.
#pragma once

#include <cstdint>
#include <initializer_list>
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

// The words of a problem line as they are drawn: what generators of lines have in common.
class DrawnWords {
 public:
  explicit DrawnWords(test::Random& random) : random_(random) {}

 protected:
  static std::string list(const std::vector<std::int64_t>& numbers) {
    std::string out;
    for (const std::int64_t n : numbers) out += (out.empty() ? "" : ",") + std::to_string(n);
    return out;
  }
  std::string pick(std::initializer_list<const char*> from) {
    return from.begin()[random_.below(static_cast<std::uint32_t>(from.size()))];
  }
  void word(const std::string& key, const std::string& value) { line_ += " " + key + "=" + value; }
  void word(const std::string& key, std::int64_t value) { word(key, std::to_string(value)); }
  std::int64_t upto(std::int64_t most) {
    return random_.below(static_cast<std::uint32_t>(most) + 1);
  }

  test::Random& random_;
  std::string line_;  // begins with a blank
};

}  // namespace fovea::conformance

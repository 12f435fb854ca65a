// The tangent: how outputs and gradients change along a direction (tangent.cpp has the formulas).
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "engines/reference/formulas.h"

namespace fovea::reference {

// Of s = mod(s0, captured) at a point: itself, the derivative by s0, the change that the tangents
// of captured things make, and the derivatives of both by s0.
struct Slopes {
  double s = 0;
  double by_score = 1, by_captured = 0;
  double second = 0, captured_second = 0;
};

// A score_mod with its first and second derivatives. Captured things move too: the tangent of
// tensor or scalar `slot` is bound behind all others, at slot + count. Immutable; every value lives
// in the caller's cells.
class TangentFormulas {
 public:
  TangentFormulas() = default;
  explicit TangentFormulas(const Problem& baked);

  std::size_t cell_count() const { return derivatives_.cell_count(); }

  // Evaluates everything at a point whose score is set.
  Slopes at(const Point& point, Cells cells) const;
  // The roots of a captured thing: the derivative of s by it, of that by s0, and of the change by
  // tangents by it.
  const Derivatives& derivatives() const { return derivatives_; }

 private:
  Derivatives derivatives_;
};

// Each lane does some of the heads, with a scratch of its own. How many there are follows from the
// sizes alone, so that the bits do not depend on the number of threads.
inline constexpr std::size_t most_lanes = 8;
struct ReferenceCall;
void tangent(std::span<std::optional<ReferenceCall>> lanes, const TangentFormulas& formulas);

}  // namespace fovea::reference

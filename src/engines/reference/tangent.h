// The tangent: how outputs and gradients change along a direction (tangent.cpp has the formulas).
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "engines/reference/formulas.h"

namespace fovea::reference {

// Of s = mod(s0, captured) at a point: itself, the derivative by s0, the change that the tangents
// of captured things make, and the derivatives of both by s0.
struct Slopes {
  double s = 0;
  double by_score = 1, by_captured = 0;
  double second = 0, captured_second = 0;
};

// Of one score: the gradient that arrives at s, its change, and the change of s0.
struct ScoreChange {
  double grad = 0, grad_change = 0, s0_change = 0;
};

// A score_mod with its first and second derivatives. Captured things move too: the tangent of
// tensor or scalar `slot` is bound behind all others, at slot + count. Immutable; every value lives
// in the caller's cells.
class TangentFormulas {
 public:
  TangentFormulas() = default;
  explicit TangentFormulas(const Problem& baked);

  std::size_t cell_count() const { return slopes_ ? slopes_->value_count() : 0; }

  // Evaluates everything at a point whose score is set; the rest reads the cells.
  Slopes at(const Point& point, Cells cells) const;

  // How the gradients that are wanted of captured things change.
  std::size_t load_count() const { return loads_.size(); }
  std::size_t scalar_count() const { return scalars_.size(); }
  LoadTerm load_change(std::size_t i, const ScoreChange& change, Cells cells) const;
  std::uint32_t scalar_slot(std::size_t i) const { return scalars_[i].slot; }
  double scalar_change(std::size_t i, const ScoreChange& change, Cells cells) const;

 private:
  // A captured thing whose gradient is wanted: roots of the derivative of s by it, of that by s0,
  // and of the change by tangents by it; behind them the indices of a load.
  struct CapturedRoots {
    std::uint32_t slot;
    std::size_t first_root, rank;
  };
  double change_of(const CapturedRoots& captured, const ScoreChange& change, Cells cells) const;

  std::optional<ir::Evaluator<double>> slopes_;
  std::vector<CapturedRoots> loads_, scalars_;
};

// Each lane does some of the heads, with a scratch of its own. How many there are follows from the
// sizes alone, so that the bits do not depend on the number of threads.
inline constexpr std::size_t most_lanes = 8;
struct ReferenceCall;
void tangent(std::span<std::optional<ReferenceCall>> lanes, const TangentFormulas& formulas);

}  // namespace fovea::reference

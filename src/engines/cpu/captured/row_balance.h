// Removes a rounding error from gradients of values that all scores of a row share (slopes,
// scalars).
//
// The gradients dS of a row's scores must add up to dlse. In f32 they do not quite, since dP and
// rowsum(dO * O) are rounded independently; if one probability is near 1, its dS is mostly that
// rounding error. The gradient of a slope, sum dS (k - q), multiplies the error by distances.
// Assuming that the error is spread over the row in proportion to its probabilities P, the gradient
// without it is
//   sum dS w - (sum dS - dlse) * sum P w
// This needs probabilities that add up to 1. So nothing is done for rows of which the call sees
// only some keys, for rows whose sink takes a part, or with dropout, since what it leaves of a row
// may add up to 1 by chance.
#pragma once

#include <cstdint>
#include <span>

#include "attention/arena.h"
#include "engines/cpu/strips/strip.h"

namespace fovea::cpu {

// Of one row in one chunk of keys, and of each gradient that the row shares.
struct RowTerm {
  double mean = 0;       // sum P w
  std::int64_t at = -1;  // the element; -1: nothing in the row is alive
};
struct RowTotals {
  double gradients = 0, probabilities = 0;  // sum dS, sum P
  bool complete(double lse) const;          // the probabilities are all of the row
};

// The sums of the block at hand: a vector for each row, [2 + terms][rows][lanes].
class BalanceSums {
 public:
  BalanceSums() = default;
  BalanceSums(Arena& arena, std::size_t terms, int rows, int lanes);

  void clear() const;
  float* of(std::size_t which, int row) const;
  double sum(std::size_t which, int row) const;
  std::int64_t& at(std::size_t term, int row) const {
    return at_[term * static_cast<std::size_t>(rows_) + static_cast<std::size_t>(row)];
  }

  static constexpr std::size_t gradients = 0, probabilities = 1, first_term = 2;

 private:
  std::span<float> sums_;
  std::span<std::int64_t> at_;  // [terms][rows]
  int rows_ = 0, lanes_ = 0;
};

}  // namespace fovea::cpu

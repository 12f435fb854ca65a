// What rounding adds to gradients that all scores of a row share, taken back.
//
// The gradients dS of a row's scores add up to dlse. Computed in f32 they add up to something else:
// dP and rowsum(dO * O) are rounded apart, and where one probability is near 1 that is all there is
// left of its dS. A gradient such as sum dS (k - q), of a slope, multiplies it by distances. What
// is too much lies where the probabilities are, so
//   sum dS w - (sum dS - dlse) * sum P w
// is the same number without it: what an attention that has all scores at hand computes. It is
// right whatever sum P w is, as long as the probabilities of the row add up to 1 (they do not if
// the call sees some of the keys, if there is a sink, and under dropout: nothing is done then).
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

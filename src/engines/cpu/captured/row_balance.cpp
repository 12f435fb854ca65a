#include "engines/cpu/captured/row_balance.h"

#include <algorithm>
#include <cmath>

namespace fovea::cpu {

// lse is stored as f32.
bool RowTotals::complete(double lse) const {
  return std::abs(probabilities - 1) <= 2e-6 + 1.2e-7 * std::abs(lse);
}

BalanceSums::BalanceSums(Arena& arena, std::size_t terms, int rows, int lanes)
    : sums_(arena.take<float>(static_cast<std::int64_t>(first_term + terms) * rows, lanes)),
      at_(arena.take<std::int64_t>(static_cast<std::int64_t>(terms), rows)),
      rows_(rows),
      lanes_(lanes) {}

void BalanceSums::clear() const {
  std::ranges::fill(sums_, 0.0f);
  std::ranges::fill(at_, -1);
}

float* BalanceSums::of(std::size_t which, int row) const {
  const auto rows = static_cast<std::size_t>(rows_), lanes = static_cast<std::size_t>(lanes_);
  return sums_.data() + (which * rows + static_cast<std::size_t>(row)) * lanes;
}

double BalanceSums::sum(std::size_t which, int row) const {
  const float* const from = of(which, row);
  double sum = 0;
  int lane = 0;
  for (; lane + 4 <= lanes_;
       lane += 4) {  // in pairs, since one long chain of additions would take longer
    sum += (static_cast<double>(from[lane]) + static_cast<double>(from[lane + 1])) +
           (static_cast<double>(from[lane + 2]) + static_cast<double>(from[lane + 3]));
  }
  for (; lane < lanes_; ++lane) sum += static_cast<double>(from[lane]);
  return sum;
}

}  // namespace fovea::cpu

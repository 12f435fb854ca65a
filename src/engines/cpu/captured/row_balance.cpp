#include "engines/cpu/captured/row_balance.h"

#include <algorithm>
#include <array>
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
  std::array<double, 4> parts{};  // side by side: a chain of additions takes longer
  for (int lane = 0; lane < lanes_; ++lane) {
    parts[static_cast<std::size_t>(lane) % 4] += static_cast<double>(from[lane]);
  }
  return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

}  // namespace fovea::cpu

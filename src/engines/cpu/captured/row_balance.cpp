#include "engines/cpu/captured/row_balance.h"

#include <algorithm>
#include <cmath>

namespace fovea::cpu {

// lse is stored as f32.
bool RowTotals::complete(double lse) const {
  return std::abs(probabilities - 1) <= 2e-6 + 1.2e-7 * std::abs(lse);
}

BalanceSums::BalanceSums(Arena& arena, std::size_t terms, int rows, int width)
    : sums_(arena.take<float>(static_cast<std::int64_t>(first_term + terms) * rows, width)),
      at_(arena.take<std::int64_t>(static_cast<std::int64_t>(terms), rows)),
      rows_(rows),
      width_(width) {}

void BalanceSums::clear() const {
  std::ranges::fill(sums_, 0.0f);
  std::ranges::fill(at_, -1);
}

float* BalanceSums::start(std::size_t which, int row) const {
  const auto rows = static_cast<std::size_t>(rows_), width = static_cast<std::size_t>(width_);
  return sums_.data() + (which * rows + static_cast<std::size_t>(row)) * width;
}

void BalanceSums::add(std::size_t which, int row, const float* x, const float* y,
                      int columns) const {
  float* const to = start(which, row);
  if (x == nullptr) {
    for (int c = 0; c < columns; ++c) to[c] += y[c];
  } else {
    for (int c = 0; c < columns; ++c) to[c] += x[c] * y[c];
  }
}

double BalanceSums::sum(std::size_t which, int row) const {
  const float* const from = start(which, row);
  double sum = 0;
  for (int c = 0; c < width_; ++c) sum += static_cast<double>(from[c]);
  return sum;
}

}  // namespace fovea::cpu

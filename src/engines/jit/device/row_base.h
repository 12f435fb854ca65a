// What f32 formulas add to all scores of a row, or along it (ALiBi): kept in double, apart from the
// scores of a tile, which are relative to it, so that large numbers cost no digits.
#pragma once

#include "formula.h"
#include "primitives.h"

namespace fovea::device {

// A row's part at one key: scores near that key are base + slope * (k - key) + Formula::score.
struct RowBase {
  double base;  // finite
  float slope;  // along k
  float rest;   // what is not finite, added to each score
};

template <class Formula, class Arguments>
FOVEA_DEVICE RowBase row_base(const Arguments& a, const typename Formula::Uniform& u,
                              const typename Formula::Row& row, int key) {
  if constexpr (Formula::shifts) {
    const typename Formula::Column nowhere{};  // neither part changes with k
    const float slope = Formula::slope(a, u, row, nowhere);
    const double at =
        Formula::line_k * static_cast<double>(key) + Formula::line_q * static_cast<double>(row.q);
    const double base =
        static_cast<double>(Formula::shift(a, u, row, nowhere)) + static_cast<double>(slope) * at;
    const bool finite = base - base == 0;
    return {finite ? base : 0, Formula::line_k * slope, finite ? 0 : static_cast<float>(base)};
  } else {
    return {0, 0, 0};
  }
}

// A modified score, relative to the base at `key`.
template <class Formula, class Arguments>
FOVEA_DEVICE float near_score(const Arguments& a, const typename Formula::Uniform& u,
                              const typename Formula::Row& row,
                              const typename Formula::Column& column, float s, const RowBase& base,
                              int key) {
  const float score = Formula::score(a, u, row, column, s);
  if constexpr (!Formula::shifts) return score;
  const auto distance =
      static_cast<int>(static_cast<unsigned>(column.k) - static_cast<unsigned>(key));
  return fma_rn(base.slope, static_cast<float>(distance), score) + base.rest;
}

// How far a maximum or a reference moves when the base does.
FOVEA_DEVICE float moved(float value, double from, double to) {
  return static_cast<float>(static_cast<double>(value) + (from - to));
}

}  // namespace fovea::device

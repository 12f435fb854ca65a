// What the formula makes of a product in the forward for sm_90, and in which unit scores are kept.
// A factor common to all scores of a head becomes their unit: it is then part of the exponent's
// factor, and costs nothing.
#pragma once

#include "../arguments.h"
#include "../formula.h"
#include "../primitives.h"

namespace fovea::device {

struct ScoreUnit {
  float scale;  // of products, before a formula sees them
  float outer;  // of modified scores, if it cannot be their unit
  float unit;
};

template <class Formula, class Arguments>
FOVEA_DEVICE ScoreUnit score_unit(const Arguments& a, const typename Formula::Uniform& uniform) {
  float scale = value_of(a.call.scale);
  float outer = Formula::has_mod ? 1 : scale;
  if constexpr (Formula::has_factors) {
    const typename Formula::Row no_row{};
    const typename Formula::Column no_column{};
    scale *= Formula::inner_scale(a, uniform, no_row, no_column);
    outer = Formula::outer(a, uniform, no_row, no_column);
  }
  // One that is not positive would turn maxima into minima.
  const bool can_be_unit = outer > 0 && outer < infinity();
  return {scale, can_be_unit ? 1.0f : outer, can_be_unit ? outer : 1.0f};
}

// What the scores of a row have in common in a tile, and how a line along k goes on from there: the
// form in f32 of row_base.h.
struct RowLine {
  float base, slope;
};

template <class Formula, class Arguments>
FOVEA_DEVICE RowLine row_line(const Arguments& a, const typename Formula::Uniform& uniform,
                              const typename Formula::Row& row, int key) {
  const typename Formula::Column nowhere{};
  const auto at_key = static_cast<unsigned>(Formula::line_k) * static_cast<unsigned>(key) +
                      static_cast<unsigned>(Formula::line_q) * static_cast<unsigned>(row.q);
  const float slope = Formula::slope(a, uniform, row, nowhere);
  const float base = fma_rn(slope, static_cast<float>(static_cast<int>(at_key)),
                            Formula::shift(a, uniform, row, nowhere));
  return {base, Formula::line_k * slope};
}

// A scaled product to the score in its unit; `line`: what a line along k adds.
template <class Formula, class Arguments>
FOVEA_DEVICE float modified(const Arguments& a, const typename Formula::Uniform& uniform,
                            const typename Formula::Row& row,
                            const typename Formula::Column& column, float product, float line) {
  if constexpr (Formula::has_factors) {
    return Formula::inner(a, uniform, row, column, product);
  } else {
    const float score = Formula::score(a, uniform, row, column, product);
    return Formula::shifts ? score + line : score;
  }
}

}  // namespace fovea::device

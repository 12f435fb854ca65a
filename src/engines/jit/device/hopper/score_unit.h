// In which unit the forward for sm_90 keeps scores. A factor that all scores of a head have becomes
// their unit: it is then part of the exponent's factor, and costs nothing.
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

}  // namespace fovea::device

// What every softmax here needs: exponents are computed in powers of two, and a row's maximum is
// subtracted only if it is finite.
#pragma once

#include "primitives.h"

namespace fovea::device {

inline constexpr float log2_of_e = 1.4426950408889634f, ln_of_2 = 0.6931471805599453f;

// What is subtracted from scores whose maximum is x. inf - inf would be NaN.
FOVEA_DEVICE float finite_or_zero(float x) { return x == infinity() || x == -infinity() ? 0 : x; }

}  // namespace fovea::device

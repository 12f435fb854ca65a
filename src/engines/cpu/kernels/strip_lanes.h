// Functions lane by lane through the C library's double functions, for `exact`, which must match
// ir/arith bit by bit, and where a vector form would be wrong or long.
#pragma once

#include "engines/cpu/kernels/strip_pack.h"

namespace fovea::cpu::FOVEA_ISA::strip {
namespace {

#define FOVEA_LANE_FUNCTION(Name, value)         \
  struct Name {                                  \
    static double of(double x) { return value; } \
  }
FOVEA_LANE_FUNCTION(LaneExp, __builtin_exp(x));
FOVEA_LANE_FUNCTION(LaneExp2, __builtin_exp2(x));
FOVEA_LANE_FUNCTION(LaneExpm1, __builtin_expm1(x));
FOVEA_LANE_FUNCTION(LaneLog, __builtin_log(x));
FOVEA_LANE_FUNCTION(LaneLog2, __builtin_log2(x));
FOVEA_LANE_FUNCTION(LaneLog1p, __builtin_log1p(x));
FOVEA_LANE_FUNCTION(LaneRsqrt, 1 / __builtin_sqrt(x));
FOVEA_LANE_FUNCTION(LaneTanh, __builtin_tanh(x));
FOVEA_LANE_FUNCTION(LaneSigmoid, 1 / (1 + __builtin_exp(-x)));
FOVEA_LANE_FUNCTION(LaneSoftplus, x > 20 ? x : __builtin_log1p(__builtin_exp(x)));
FOVEA_LANE_FUNCTION(LaneErf, __builtin_erf(x));
FOVEA_LANE_FUNCTION(LaneSin, __builtin_sin(x));
FOVEA_LANE_FUNCTION(LaneCos, __builtin_cos(x));
FOVEA_LANE_FUNCTION(LaneTan, __builtin_tan(x));
#undef FOVEA_LANE_FUNCTION

struct LaneArray {
  float at[4 * W];
};
FOVEA_INLINE LaneArray lanes_of(Pack x) {
  LaneArray out;
  store(out.at, x.a);
  store(out.at + W, x.b);
  store(out.at + 2 * W, x.c);
  store(out.at + 3 * W, x.d);
  return out;
}
FOVEA_INLINE Pack pack_of(const LaneArray& x) {
  return {load(x.at), load(x.at + W), load(x.at + 2 * W), load(x.at + 3 * W)};
}

template <class F>
__attribute__((noinline)) void apply_lanes(LaneArray& x) {
  for (float& lane : x.at) lane = static_cast<float>(F::of(static_cast<double>(lane)));
}

template <class F>
struct PerLane {
  static Pack of(Pack x) {
    LaneArray lanes = lanes_of(x);
    apply_lanes<F>(lanes);
    return pack_of(lanes);
  }
};

// The exponents that people write have an exact meaning (ir/arith).
FOVEA_INLINE float lane_power(float x, float y) {
  if (y == 2.0f) return x * x;
  if (y == 1.0f) return x;
  if (y == -1.0f) return 1.0f / x;
  return static_cast<float>(__builtin_pow(static_cast<double>(x), static_cast<double>(y)));
}
__attribute__((noinline)) void power_lanes(LaneArray& x, const LaneArray& y) {
  for (int i = 0; i < 4 * W; ++i) x.at[i] = lane_power(x.at[i], y.at[i]);
}
struct PerLanePow {
  static Pack of(Pack x, Pack y) {
    LaneArray base = lanes_of(x);
    power_lanes(base, lanes_of(y));
    return pack_of(base);
  }
};

}  // namespace
}  // namespace fovea::cpu::FOVEA_ISA::strip

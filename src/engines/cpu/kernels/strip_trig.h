// sin, cos, tan and erf on packs, within 4 ulp. Arguments too large to be reduced in f32 go lane by
// lane through the C library.
#pragma once

#include "engines/cpu/kernels/strip_exp.h"
#include "engines/cpu/kernels/strip_lanes.h"

namespace fovea::cpu::FOVEA_ISA::strip {
namespace {

#if FOVEA_HAS_FMA

struct Angle {
  Pack r;         // in [-pi/4, pi/4]
  Pack quadrant;  // whole
};
// x = quadrant pi/2 + r, pi/2 in three pieces: fma() rounds once.
FOVEA_INLINE Angle reduce_angle(Pack x) {
  const Pack n = fma(x, 0.63661977236758134f, whole) - whole;
  Pack r = fma(n, -1.57079637050628662e+0f, x);
  r = fma(n, 4.37113900018624283e-8f, r);
  return {fma(n, 1.71512451614e-15f, r), n};
}
FOVEA_INLINE vi whole_bits(vf n) { return as_int(n + whole) - as_int(splat(whole)); }

FOVEA_INLINE Pack sin_near(Pack r, Pack square) {
  Pack p = fma(square, -1.9515295891e-4f, 8.3321608736e-3f);
  p = horner(p, square, -1.6666654611e-1f);
  return fma(p * square, r, r);
}
FOVEA_INLINE Pack cos_near(Pack square) {
  Pack p = fma(square, 2.443315711809948e-5f, -1.388731625493765e-3f);
  p = horner(p, square, 4.166664568298827e-2f);
  return fma(p * square, square, fma(square, -0.5f, 1.0f));
}

// The sine (turn = 0) or cosine (turn = 1) from both, by quadrant.
FOVEA_INLINE vf by_quadrant(vf s, vf c, vf n, int turn) {
  const vi q = whole_bits(n) + turn;
  const vf value = (q & 1) != 0 ? c : s;
  return as_float(as_int(value) ^ ((q & 2) << 30));
}
FOVEA_INLINE Pack by_quadrant(Pack s, Pack c, Pack n, int turn) {
  return {by_quadrant(s.a, c.a, n.a, turn), by_quadrant(s.b, c.b, n.b, turn),
          by_quadrant(s.c, c.c, n.c, turn), by_quadrant(s.d, c.d, n.d, turn)};
}

FOVEA_INLINE bool all_below(Pack x, float limit) {
  const vi a = absolute(x.a) <= limit, b = absolute(x.b) <= limit;
  const vi c = absolute(x.c) <= limit, d = absolute(x.d) <= limit;
  return bits_of(a & b & c & d) == (1u << W) - 1;
}
constexpr float most_angle = 8192.0f;

// `near`, with lanes of larger angles through the C library. The others stay as they are: a lane's
// bits must not depend on what lies beside it, which may be a hidden score.
template <class F>
FOVEA_INLINE Pack with_large_angles(Pack x, Pack near) {
  if (all_below(x, most_angle)) return near;
  return each([](vf small, vf large, vf v) { return absolute(v) <= most_angle ? small : large; },
              near, PerLane<F>::of(x), x);
}

struct Sin {
  static Pack of(Pack x) {
    const Pack v = absolute(x);
    const Angle a = reduce_angle(v);
    const Pack square = a.r * a.r;
    const Pack y = by_quadrant(sin_near(a.r, square), cos_near(square), a.quadrant, 0);
    return with_large_angles<LaneSin>(
        x, each([](vf s, vf sign) { return as_float(as_int(s) ^ sign_bit(sign)); }, y, x));
  }
};
struct Cos {
  static Pack of(Pack x) {
    const Angle a = reduce_angle(absolute(x));
    const Pack square = a.r * a.r;
    return with_large_angles<LaneCos>(
        x, by_quadrant(sin_near(a.r, square), cos_near(square), a.quadrant, 1));
  }
};
struct Tan {
  static Pack of(Pack x) {
    const Angle a = reduce_angle(absolute(x));
    const Pack square = a.r * a.r;
    const Pack s = sin_near(a.r, square), c = cos_near(square);
    const Pack y = by_quadrant(s, c, a.quadrant, 0) / by_quadrant(s, c, a.quadrant, 1);
    return with_large_angles<LaneTan>(
        x, each([](vf t, vf sign) { return as_float(as_int(t) ^ sign_bit(sign)); }, y, x));
  }
};

#else  // without fma() the reduction would need more pieces

using Sin = PerLane<LaneSin>;
using Cos = PerLane<LaneCos>;
using Tan = PerLane<LaneTan>;

#endif

// Two forms: a polynomial near 0, one minus an exponential elsewhere.
FOVEA_INLINE Pack erf_of(Pack x) {
  const Pack t = absolute(x), s = x * x;
  Pack near = fma(s, -5.96761703e-4f, 4.99119423e-3f);
  near = horner(near, s, -2.67681349e-2f);
  near = horner(near, s, 1.12819925e-1f);
  near = horner(near, s, -3.76125336e-1f);
  near = horner(near, s, 1.28379166e-1f);
  near = fma(near, x, x);
  const Pack v = between(t, 0.0f, 4.0f);
  Pack far = fma(v, -1.72853470e-5f, 3.83197126e-4f);
  far = fma(far, v * v, fma(v, -3.88396438e-3f, 2.42546219e-2f));
  far = horner(far, v, -1.06777877e-1f);
  far = horner(far, v, -6.34846687e-1f);
  far = horner(far, v, -1.28717512e-1f);
  far = with_sign(1.0f - exp_of(fma(far, v, all(0.0f) - v)), x);
  return each([](vf n, vf f, vf size) { return size > 0.927734375f ? f : n; }, near, far, t);
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_ISA::strip

// tanh on packs, to 3e-7 of its value everywhere: tanh(x) is x if x is small, and 1 if it is
// large.
#pragma once

#include "engines/cpu/kernels/strip_exp.h"

namespace fovea::cpu::FOVEA_ISA::strip {
namespace {

#if FOVEA_ISA_LEVEL >= 2

// A polynomial of degree 5 around each of 32 points, tanh_step apart; their coefficients are looked
// up with one instruction each, which is faster than a rational function and its division. Around 0
// it is odd, so that no digits are lost there; the last point stands for all that is larger.
constexpr float tanh_step = 37.0f / 128.0f;
constexpr float tanh_points[32][6] = {
    {0.0f, 1.0f, 0.0f, -0.33332026f, 0.0f, 0.131658256f},
    {0.281271696f, 0.920886219f, -0.259001762f, -0.23410593f, 0.149948314f, 0.0555206686f},
    {0.52130127f, 0.72824496f, -0.379626721f, -0.0448515564f, 0.148859769f, -0.0460660048f},
    {0.69994235f, 0.510080695f, -0.357030123f, 0.0798685998f, 0.0634924322f, -0.0590908229f},
    {0.819814026f, 0.327904999f, -0.268825471f, 0.111082457f, -0.000899918959f, -0.0286487043f},
    {0.894762099f, 0.199400797f, -0.178418413f, 0.0931742564f, -0.0236226935f, -0.00538259419f},
    {0.939570844f, 0.117206663f, -0.110124506f, 0.0644008741f, -0.0237312056f, 0.00343593885f},
    {0.965646565f, 0.0675266758f, -0.0652068481f, 0.0404580757f, -0.017340282f, 0.00473343115f},
    {0.980583072f, 0.038456887f, -0.0377099849f, 0.0241590012f, -0.0111437244f, 0.00370455277f},
    {0.989061475f, 0.0217574462f, -0.0215192903f, 0.0140315536f, -0.00672543794f, 0.00244103884f},
    {0.993849277f, 0.0122636482f, -0.0121881086f, 0.00802534446f, -0.00392718334f, 0.00148966874f},
    {0.996545076f, 0.00689789793f, -0.00687399879f, 0.00455100089f, -0.00225254078f,
     0.000874629477f},
    {0.998060524f, 0.00387524627f, -0.00386769022f, 0.00256846938f, -0.00127933687f,
     0.000503097312f},
    {0.99891156f, 0.00217566849f, -0.00217327732f, 0.00144570577f, -0.000722637575f,
     0.000286173483f},
    {0.999389291f, 0.0012210228f, -0.00122026401f, 0.000812520622f, -0.000406940002f,
     0.000161781718f},
    {0.999657393f, 0.000685115403f, -0.000684873259f, 0.00045627213f, -0.000228769844f,
     9.11467141e-05f},
    {0.999807775f, 0.000384372717f, -0.000384294661f, 0.000256099564f, -0.000128484869f,
     5.12532897e-05f},
    {0.999892175f, 0.00021563175f, -0.000215606153f, 0.000143707337f, -7.21227989e-05f,
     2.87897383e-05f},
    {0.999939501f, 0.000120964178f, -0.000120955541f, 8.06277749e-05f, -4.04727434e-05f,
     1.61619355e-05f},
    {0.999966085f, 6.78565557e-05f, -6.78535143e-05f, 4.52328859e-05f, -2.27080363e-05f,
     9.06991318e-06f},
    {0.999980986f, 3.80646452e-05f, -3.80635029e-05f, 2.53748622e-05f, -1.27395915e-05f,
     5.08898438e-06f},
    {0.999989331f, 2.13525091e-05f, -2.1352047e-05f, 1.42344834e-05f, -7.14674707e-06f,
     2.85504666e-06f},
    {0.99999404f, 1.19777278e-05f, -1.1977525e-05f, 7.98497149e-06f, -4.00911404e-06f,
     1.60165723e-06f},
    {0.999996662f, 6.71891439e-06f, -6.71881799e-06f, 4.47921002e-06f, -2.24895712e-06f,
     8.98486405e-07f},
    {0.999998093f, 3.76897492e-06f, -3.76892649e-06f, 2.51262395e-06f, -1.26156567e-06f,
     5.0401718e-07f},
    {0.999998927f, 2.11420502e-06f, -2.11417978e-06f, 1.40945895e-06f, -7.07678907e-07f,
     2.82731804e-07f},
    {0.999999404f, 1.18596211e-06f, -1.18594846e-06f, 7.9063625e-07f, -3.96973377e-07f,
     1.58599349e-07f},
    {0.999999642f, 6.65264622e-07f, -6.65257119e-07f, 4.43507219e-07f, -2.2268236e-07f,
     8.89665515e-08f},
    {0.999999821f, 3.73179688e-07f, -3.73175538e-07f, 2.48785142e-07f, -1.24913626e-07f,
     4.99058288e-08f},
    {0.999999881f, 2.09334843e-07f, -2.09332526e-07f, 1.39555866e-07f, -7.00702429e-08f,
     2.79946697e-08f},
    {0.99999994f, 1.17426211e-07f, -1.17424918e-07f, 7.82837617e-08f, -3.93058599e-08f,
     1.57035984e-08f},
    {1.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f},
};
// The same, so that a vector has one coefficient of neighbouring points.
struct TanhCoefficients {
  alignas(64) float of[6][32];
};
constexpr TanhCoefficients tanh_coefficients = [] {
  TanhCoefficients out{};
  for (int i = 0; i < 6; ++i) {
    for (int point = 0; point < 32; ++point) out.of[i][point] = tanh_points[point][i];
  }
  return out;
}();

// The table of v tanh(x / u), u > 0: scaling the points and coefficients once saves two operations
// on every vector.
struct TanhTable {
  vf low[7], high[7];  // coefficients, and the points
  float last, per_step;
};
FOVEA_INLINE TanhTable load_tanh_table(float u, float v) {
  TanhTable out;
  const float inverse = 1.0f / u;
  out.last = 31 * tanh_step * u;
  out.per_step = inverse * (1.0f / tanh_step);
  float scale = v;
  for (int i = 0; i < 6; ++i) {
    out.low[i] = load(tanh_coefficients.of[i]) * scale;
    out.high[i] = load(tanh_coefficients.of[i] + W) * scale;
    scale *= inverse;
  }
  const vf number = to_float(lanes());
  out.low[6] = number * (tanh_step * u);
  out.high[6] = (number + 16.0f) * (tanh_step * u);
  return out;
}
// Whether nothing overflows or gets lost in such a table.
FOVEA_INLINE bool fits_tanh_table(float u, float v) {
  const float size = __builtin_fabsf(v);
  return u > 1e-5f && u < 1e5f && ((size > 1e-9f && size < 1e9f) || v == 0.0f);
}
FOVEA_INLINE Pack look_up(const TanhTable& t, int i, Pack at) {
  const auto one = [&](vf index) __attribute__((always_inline)) {
    return (vf)_mm512_permutex2var_ps((__m512)t.low[i], (__m512i)index, (__m512)t.high[i]);
  };
  return {one(at.a), one(at.b), one(at.c), one(at.d)};
}

FOVEA_INLINE Pack tanh_of(Pack x, const TanhTable& table) {
  const Pack v = min_raw(table.last, absolute(x));  // keeps NaN
  const Pack at = fma(v, table.per_step, whole);    // its low bits are the number of the point
  const Pack t = v - look_up(table, 6, at);
  Pack p = look_up(table, 5, at);
  p = fma(p, t, look_up(table, 4, at));
  p = fma(p, t, look_up(table, 3, at));
  p = fma(p, t, look_up(table, 2, at));
  p = fma(p, t, look_up(table, 1, at));
  p = fma(p, t, look_up(table, 0, at));
  return each([](vf y, vf sign) { return as_float(as_int(y) ^ sign_bit(sign)); }, p, x);
}
FOVEA_INLINE Pack tanh_of(Pack x) { return tanh_of(x, load_tanh_table(1.0f, 1.0f)); }

#else

// x P(x^2) / Q(x^2), fitted up to where tanh is 1.
FOVEA_INLINE Pack tanh_of(Pack x) {
  const Pack v = min_raw(9.02f, absolute(x));  // keeps NaN
  const Pack s = v * v;
  Pack p = fma(s, 1.33432545e-8f, 2.06032182e-5f);
  Pack q = fma(s, 7.77258322e-7f, 3.28515045e-4f);
  p = horner(p, s, 3.49533837e-3f);
  q = horner(q, s, 2.58761458e-2f);
  p = horner(p, s, 1.33808523e-1f);
  q = horner(q, s, 4.67141688e-1f);
  p = horner(p, s, 1.0f);
  q = horner(q, s, 1.0f);
  return with_sign(min_raw(1.0f, v * p / q), x);
}

#endif

}  // namespace
}  // namespace fovea::cpu::FOVEA_ISA::strip

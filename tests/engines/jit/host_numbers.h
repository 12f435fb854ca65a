// As much of src/engines/jit/device/primitives.h as formulas use, for the host's compiler: kernels'
// headers include this if FOVEA_HOST_PRIMITIVES names it. What the special function unit does is
// rounded as coarsely as there.
#pragma once

#include <cmath>
#include <cstring>

#include <math.h>

#define FOVEA_DEVICE inline
#define FOVEA_NO_UNROLL

namespace fovea::device {

struct F16 {};
struct BF16 {};

inline float float_of_bits(unsigned x) {
  float y;
  std::memcpy(&y, &x, sizeof y);
  return y;
}
inline unsigned bits_of(float x) {
  unsigned y;
  std::memcpy(&y, &x, sizeof y);
  return y;
}
inline float infinity() { return __builtin_inff(); }

inline float to_float(BF16, unsigned short x) {
  return float_of_bits(static_cast<unsigned>(x) << 16);
}
inline float to_float(F16, unsigned short x) {
  const int exponent = x >> 10 & 31, fraction = x & 1023;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                     : exponent == 31
                         ? (fraction != 0 ? __builtin_nanf("") : infinity())
                         : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  return (x & 0x8000) != 0 ? -size : size;
}

template <class T>
T load_global(const T* at) {
  return *at;
}

inline float add_rn(float a, float b) { return a + b; }
inline float sub_rn(float a, float b) { return a - b; }
inline float mul_rn(float a, float b) { return a * b; }
inline float div_rn(float a, float b) { return a / b; }
inline float fma_rn(float a, float b, float c) { return std::fma(a, b, c); }

inline float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }
// Two units in the last place off, as the hardware may be.
inline float nudged(float x) { return x * (1 + 0x1p-22f); }
inline float exp2_approx(float x) { return flushed(nudged(std::exp2(flushed(x)))); }
inline float log2_approx(float x) { return std::log2(x) + 0x1p-22f; }
inline float tanh_approx(float x) { return std::tanh(x) * (1 - 0x1p-11f); }
inline float reciprocal_approx(float x) { return flushed(nudged(1 / flushed(x))); }

}  // namespace fovea::device

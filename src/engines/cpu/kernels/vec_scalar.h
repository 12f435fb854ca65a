// The vector operations for any processor: whatever the compiler makes of plain vectors.
#pragma once

#include "engines/cpu/kernels/vec_base.h"

namespace fovea::cpu::FOVEA_ISA {
namespace {

FOVEA_INLINE vf fma(vf a, vf b, vf c) { return a * b + c; }
FOVEA_INLINE vf round_even(vf x) {  // |x| >= 2^23 is whole already
  const vi sign = as_int(x) & splat(INT32_MIN);
  const vf magnitude = as_float(as_int(x) ^ sign);
  const vf whole = (magnitude + 8388608.0f) - 8388608.0f;
  const vf rounded = as_float(as_int(whole) | sign);
  return magnitude < 8388608.0f ? rounded : x;
}
FOVEA_INLINE vf sqrt_of(vf x) {
  vf out{};
  for (int i = 0; i < W; ++i) out[i] = __builtin_sqrtf(x[i]);
  return out;
}
FOVEA_INLINE uint32_t bits_of(vi mask) {
  uint32_t bits = 0;
  for (int i = 0; i < W; ++i) bits |= (mask[i] < 0 ? 1u : 0u) << i;
  return bits;
}
FOVEA_INLINE float half_value(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fffu) << 13;
  uint32_t out = magnitude + 0x38000000u;
  if (magnitude >= 0x0f800000u) {
    out = magnitude + 0x70000000u;  // infinity, NaN
    if (magnitude != 0x0f800000u) out |= 0x00400000u;
  } else if (magnitude < 0x00800000u) {  // subnormal: the number of 2^-24
    const float value = static_cast<float>(bits & 0x7fffu) * 5.9604644775390625e-08f;
    memcpy(&out, &value, sizeof out);
  }
  out |= sign;
  float value;
  memcpy(&value, &out, sizeof value);
  return value;
}
FOVEA_INLINE vf load_half(const uint16_t* p) {
  vf out{};
  for (int i = 0; i < W; ++i) out[i] = half_value(p[i]);
  return out;
}
FOVEA_INLINE vf load_bfloat(const uint16_t* p) {
  vi out{};
  for (int i = 0; i < W; ++i) out[i] = static_cast<int32_t>(static_cast<uint32_t>(p[i]) << 16);
  return as_float(out);
}
FOVEA_INLINE uint16_t half_bits(float value) {  // to nearest, ties to even
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | (bits >> 13 & 0x3ffu));
  if (bits >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (bits <
      0x38800000u) {  // subnormal or zero: adding 0.5 leaves the number of 2^-24 in the low bits
    float magnitude;
    memcpy(&magnitude, &bits, sizeof magnitude);
    magnitude += 0.5f;
    uint32_t rounded;
    memcpy(&rounded, &magnitude, sizeof rounded);
    return static_cast<uint16_t>(sign | (rounded - 0x3f000000u));
  }
  const uint32_t rounded = bits + 0xfffu + (bits >> 13 & 1u);
  return static_cast<uint16_t>(sign | (rounded - 0x38000000u) >> 13);
}
FOVEA_INLINE void store_half(uint16_t* p, vf x) {
  for (int i = 0; i < W; ++i) p[i] = half_bits(x[i]);
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_ISA

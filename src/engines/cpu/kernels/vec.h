// A thin vector layer: W floats or 32-bit integers at a time, over the compiler's vector types and
// a handful of intrinsics. Included only by the kernel sources of this folder, once per instruction
// set, inside that set's own namespace: everything here has internal linkage, and nothing of the
// C++ library is used, so that no code for one processor can leak into another's (see isa.h).
//
// a + b, a * b, a < b, m ? a : b work on vectors as they do on numbers. A comparison gives a vi of
// 0 and -1. Nothing is contracted: fma() is the only fused operation.
#pragma once

#include <stdint.h>
#include <string.h>

#include "engines/cpu/kernels/isa.h"

#if FOVEA_ISA_LEVEL > 0
#include <immintrin.h>
#endif

namespace fovea::cpu::FOVEA_ISA {
namespace {

#define FOVEA_INLINE __attribute__((always_inline)) static inline
#define FOVEA_INLINE_MEMBER __attribute__((always_inline)) inline

typedef float vf __attribute__((vector_size(W * 4)));
typedef int32_t vi __attribute__((vector_size(W * 4)));
typedef uint32_t vu __attribute__((vector_size(W * 4)));
typedef float vf_at __attribute__((vector_size(W * 4), aligned(4), may_alias));
typedef int32_t vi_at __attribute__((vector_size(W * 4), aligned(4), may_alias));

FOVEA_INLINE vf splat(float x) { return x - vf{}; }  // x - 0 is x, also for -0: no instruction
FOVEA_INLINE vi splat(int32_t x) { return vi{} + x; }
FOVEA_INLINE vf load(const float* p) { return *reinterpret_cast<const vf_at*>(p); }
FOVEA_INLINE vi load(const int32_t* p) { return *reinterpret_cast<const vi_at*>(p); }
FOVEA_INLINE void store(float* p, vf x) { *reinterpret_cast<vf_at*>(p) = x; }
FOVEA_INLINE void store(int32_t* p, vi x) { *reinterpret_cast<vi_at*>(p) = x; }
FOVEA_INLINE vi as_int(vf x) { return reinterpret_cast<vi>(x); }
FOVEA_INLINE vf as_float(vi x) { return reinterpret_cast<vf>(x); }
FOVEA_INLINE vf to_float(vi x) { return __builtin_convertvector(x, vf); }
FOVEA_INLINE vi lanes() {  // 0, 1, 2 ...
  vi out{};
  for (int i = 0; i < W; ++i) out[i] = i;
  return out;
}

#if FOVEA_ISA_LEVEL >= 2  // AVX-512
FOVEA_INLINE vf fma(vf a, vf b, vf c) {
  return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
// The second operand where either is NaN.
FOVEA_INLINE vf max_raw(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
FOVEA_INLINE vf min_raw(vf a, vf b) { return (vf)_mm512_min_ps((__m512)a, (__m512)b); }
FOVEA_INLINE vf round_even(vf x) { return (vf)_mm512_roundscale_ps((__m512)x, 8); }
FOVEA_INLINE vi to_int_even(vf x) { return (vi)_mm512_cvtps_epi32((__m512)x); }
FOVEA_INLINE vf sqrt_of(vf x) { return (vf)_mm512_sqrt_ps((__m512)x); }
FOVEA_INLINE uint32_t bits_of(vi mask) { return _mm512_movepi32_mask((__m512i)mask); }
FOVEA_INLINE vf select_bits(uint32_t bits, vf a, vf b) {
  return (vf)_mm512_mask_blend_ps((__mmask16)bits, (__m512)b, (__m512)a);
}
FOVEA_INLINE vf load_first(const float* p, int n) {  // the rest is 0; reads n floats only
  return (vf)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
FOVEA_INLINE void store_first(float* p, vf x, int n) {
  _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)x);
}
FOVEA_INLINE vf load_half(const uint16_t* p) {
  return (vf)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
FOVEA_INLINE vf load_bfloat(const uint16_t* p) {
  return (vf)_mm512_slli_epi32(
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16);
}
FOVEA_INLINE void store_half(uint16_t* p, vf x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph((__m512)x, 0));
}
#elif FOVEA_ISA_LEVEL == 1  // AVX2
FOVEA_INLINE vf fma(vf a, vf b, vf c) {
  return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
FOVEA_INLINE vf max_raw(vf a, vf b) { return (vf)_mm256_max_ps((__m256)a, (__m256)b); }
FOVEA_INLINE vf min_raw(vf a, vf b) { return (vf)_mm256_min_ps((__m256)a, (__m256)b); }
FOVEA_INLINE vf round_even(vf x) { return (vf)_mm256_round_ps((__m256)x, 8); }
FOVEA_INLINE vi to_int_even(vf x) { return (vi)_mm256_cvtps_epi32((__m256)x); }
FOVEA_INLINE vf sqrt_of(vf x) { return (vf)_mm256_sqrt_ps((__m256)x); }
FOVEA_INLINE uint32_t bits_of(vi mask) {
  return static_cast<uint32_t>(_mm256_movemask_ps((__m256)mask));
}
FOVEA_INLINE vi mask_of_bits(uint32_t bits) {
  const vi one_each{1, 2, 4, 8, 16, 32, 64, 128};
  return (splat(static_cast<int32_t>(bits)) & one_each) == one_each;
}
FOVEA_INLINE vf select_bits(uint32_t bits, vf a, vf b) {
  return (vf)_mm256_blendv_ps((__m256)b, (__m256)a, (__m256)mask_of_bits(bits));
}
FOVEA_INLINE vf load_first(const float* p, int n) {
  return (vf)_mm256_maskload_ps(p, (__m256i)(lanes() < n));
}
FOVEA_INLINE void store_first(float* p, vf x, int n) {
  if (n == W) return store(p, x);  // the masked one is microcode on AMD: 40 operations
  _mm256_maskstore_ps(p, (__m256i)(lanes() < n), (__m256)x);
}
FOVEA_INLINE vf load_half(const uint16_t* p) {
  return (vf)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
FOVEA_INLINE vf load_bfloat(const uint16_t* p) {
  return (vf)_mm256_slli_epi32(
      _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16);
}
FOVEA_INLINE void store_half(uint16_t* p, vf x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph((__m256)x, 0));
}
#else                       // whatever the compiler makes of plain vectors
FOVEA_INLINE vf fma(vf a, vf b, vf c) { return a * b + c; }
FOVEA_INLINE vf max_raw(vf a, vf b) { return a > b ? a : b; }
FOVEA_INLINE vf min_raw(vf a, vf b) { return a < b ? a : b; }
FOVEA_INLINE vf round_even(vf x) {  // |x| >= 2^23 is whole already
  const vi sign = as_int(x) & splat(INT32_MIN);
  const vf magnitude = as_float(as_int(x) ^ sign);
  const vf whole = (magnitude + 8388608.0f) - 8388608.0f;
  const vf rounded = as_float(as_int(whole) | sign);
  return magnitude < 8388608.0f ? rounded : x;
}
FOVEA_INLINE vi to_int_even(vf x) {
  vi out{};
  const vf whole = round_even(x);
  for (int i = 0; i < W; ++i) {
    const bool fits = whole[i] >= -2147483648.0f && whole[i] < 2147483648.0f;
    out[i] = fits ? static_cast<int32_t>(whole[i]) : INT32_MIN;
  }
  return out;
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
FOVEA_INLINE vi mask_of_bits(uint32_t bits) {
  vi out{};
  for (int i = 0; i < W; ++i) out[i] = (bits >> i & 1u) != 0 ? -1 : 0;
  return out;
}
FOVEA_INLINE vf select_bits(uint32_t bits, vf a, vf b) { return mask_of_bits(bits) ? a : b; }
FOVEA_INLINE vf load_first(const float* p, int n) {
  vf out{};
  for (int i = 0; i < n; ++i) out[i] = p[i];
  return out;
}
FOVEA_INLINE void store_first(float* p, vf x, int n) {
  for (int i = 0; i < n; ++i) p[i] = x[i];
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
#endif

// Some lanes of a vector, as the instruction set selects them.
#if FOVEA_ISA_LEVEL >= 2
typedef uint32_t Lanes;
FOVEA_INLINE Lanes lanes_where(vi mask) { return bits_of(mask); }
FOVEA_INLINE Lanes lanes_of_bits(uint32_t bits) { return bits; }
FOVEA_INLINE uint32_t bits_of_lanes(Lanes lanes) { return lanes; }
FOVEA_INLINE vf only(Lanes lanes, vf x) { return select_bits(lanes, x, vf{}); }  // others are 0
#else
typedef vi Lanes;
FOVEA_INLINE Lanes lanes_where(vi mask) { return mask; }
FOVEA_INLINE Lanes lanes_of_bits(uint32_t bits) { return mask_of_bits(bits); }
FOVEA_INLINE uint32_t bits_of_lanes(Lanes lanes) { return bits_of(lanes); }
FOVEA_INLINE vf only(Lanes lanes, vf x) { return as_float(lanes & as_int(x)); }
#endif

// To nearest, ties to even; a NaN stays one, made quiet.
FOVEA_INLINE vu bfloat_bits(vf x) {
  const vu bits = reinterpret_cast<vu>(x);
  const vu rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  const vu quiet = (bits >> 16) | 0x40u;
  return reinterpret_cast<vu>(x != x ? reinterpret_cast<vi>(quiet) : reinterpret_cast<vi>(rounded));
}
FOVEA_INLINE void store_bfloat(uint16_t* p, vf x) {
  typedef uint16_t vh __attribute__((vector_size(W * 2)));
  const vh out = __builtin_convertvector(bfloat_bits(x), vh);
  memcpy(p, &out, sizeof out);
}

// Lane i is lane from[i] of a and b, b's lanes numbered after a's. `from` is known when it
// compiles.
FOVEA_INLINE vf shuffle(vf a, vf b, vi from) {
#if defined(__clang__)
  vf out{};
  for (int i = 0; i < W; ++i) out[i] = from[i] < W ? a[from[i]] : b[from[i] - W];
  return out;
#else
  return __builtin_shuffle(a, b, from);
#endif
}

// Lane i with lane i ^ step.
template <int step>
FOVEA_INLINE vf swap_lanes(vf x) {
  vi from{};
  for (int i = 0; i < W; ++i) from[i] = i ^ step;
  return shuffle(x, x, from);
}
FOVEA_INLINE float sum_of(vf x) {
  if constexpr (W >= 16) x += swap_lanes<8>(x);
  if constexpr (W >= 8) x += swap_lanes<4>(x);
  x += swap_lanes<2>(x);
  x += swap_lanes<1>(x);
  return x[0];
}
FOVEA_INLINE float max_of(vf x) {
  if constexpr (W >= 16) x = max_raw(x, swap_lanes<8>(x));
  if constexpr (W >= 8) x = max_raw(x, swap_lanes<4>(x));
  x = max_raw(x, swap_lanes<2>(x));
  x = max_raw(x, swap_lanes<1>(x));
  return x[0];
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_ISA

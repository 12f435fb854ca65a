// The vector operations of AVX-512 and AVX2.
#pragma once

#include <immintrin.h>

#include "engines/cpu/kernels/vec_base.h"

namespace fovea::cpu::FOVEA_ISA {
namespace {

FOVEA_INLINE float half_value(uint16_t bits) { return _cvtsh_ss(bits); }

#if FOVEA_ISA_LEVEL >= 2  // AVX-512
FOVEA_INLINE vf fma(vf a, vf b, vf c) {
  return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
// The second operand if either is NaN.
FOVEA_INLINE vf max_raw(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
FOVEA_INLINE vf min_raw(vf a, vf b) { return (vf)_mm512_min_ps((__m512)a, (__m512)b); }
FOVEA_INLINE vf round_even(vf x) { return (vf)_mm512_roundscale_ps((__m512)x, 8); }
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
#else  // AVX2
FOVEA_INLINE vf fma(vf a, vf b, vf c) {
  return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
FOVEA_INLINE vf max_raw(vf a, vf b) { return (vf)_mm256_max_ps((__m256)a, (__m256)b); }
FOVEA_INLINE vf min_raw(vf a, vf b) { return (vf)_mm256_min_ps((__m256)a, (__m256)b); }
FOVEA_INLINE vf round_even(vf x) { return (vf)_mm256_round_ps((__m256)x, 8); }
FOVEA_INLINE vf sqrt_of(vf x) { return (vf)_mm256_sqrt_ps((__m256)x); }
FOVEA_INLINE uint32_t bits_of(vi mask) {
  return static_cast<uint32_t>(_mm256_movemask_ps((__m256)mask));
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
#endif

}  // namespace
}  // namespace fovea::cpu::FOVEA_ISA

// i32 division, remainder and casts on vectors, exactly as ir/arith defines them: nothing traps,
// division by zero gives 0, INT_MIN / -1 wraps.
#pragma once

#include "engines/cpu/kernels/strip_pack.h"

namespace fovea::cpu::FOVEA_ISA::strip {
namespace {

#if FOVEA_ISA_LEVEL >= 2
// The quotient of two i32 in double is never rounded up to a whole number, so cutting it is exact.
FOVEA_INLINE __m256i cut_quotient(__m256i a, __m256i b) {
  return _mm512_cvttpd_epi32(_mm512_div_pd(_mm512_cvtepi32_pd(a), _mm512_cvtepi32_pd(b)));
}
FOVEA_INLINE vi raw_quotient(vi a, vi b) {
  const __m512i x = (__m512i)a, y = (__m512i)b;
  const __m256i low = cut_quotient(_mm512_castsi512_si256(x), _mm512_castsi512_si256(y));
  const __m256i high =
      cut_quotient(_mm512_extracti32x8_epi32(x, 1), _mm512_extracti32x8_epi32(y, 1));
  return (vi)_mm512_inserti32x8(_mm512_castsi256_si512(low), high, 1);
}
FOVEA_INLINE vi cut(vf x) { return (vi)_mm512_cvttps_epi32((__m512)x); }
FOVEA_INLINE vf floor_of(vf x) { return (vf)_mm512_roundscale_ps((__m512)x, 9); }
FOVEA_INLINE vf ceil_of(vf x) { return (vf)_mm512_roundscale_ps((__m512)x, 10); }
#elif FOVEA_ISA_LEVEL == 1
FOVEA_INLINE __m128i cut_quotient(__m128i a, __m128i b) {
  return _mm256_cvttpd_epi32(_mm256_div_pd(_mm256_cvtepi32_pd(a), _mm256_cvtepi32_pd(b)));
}
FOVEA_INLINE vi raw_quotient(vi a, vi b) {
  const __m256i x = (__m256i)a, y = (__m256i)b;
  const __m128i low = cut_quotient(_mm256_castsi256_si128(x), _mm256_castsi256_si128(y));
  const __m128i high = cut_quotient(_mm256_extracti128_si256(x, 1), _mm256_extracti128_si256(y, 1));
  return (vi)_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}
FOVEA_INLINE vi cut(vf x) { return (vi)_mm256_cvttps_epi32((__m256)x); }
FOVEA_INLINE vf floor_of(vf x) { return (vf)_mm256_round_ps((__m256)x, 9); }
FOVEA_INLINE vf ceil_of(vf x) { return (vf)_mm256_round_ps((__m256)x, 10); }
#else
FOVEA_INLINE vi raw_quotient(vi a, vi b) {
  vi out{};
  for (int i = 0; i < W; ++i) out[i] = b[i] == 0 || b[i] == -1 ? INT32_MIN : a[i] / b[i];
  return out;
}
FOVEA_INLINE vi cut(vf x) {
  vi out{};
  for (int i = 0; i < W; ++i) {
    const bool fits = x[i] >= -2147483648.0f && x[i] < 2147483648.0f;
    out[i] = fits ? static_cast<int32_t>(x[i]) : INT32_MIN;
  }
  return out;
}
FOVEA_INLINE vf floor_of(vf x) {
  vf out{};
  for (int i = 0; i < W; ++i) out[i] = __builtin_floorf(x[i]);
  return out;
}
FOVEA_INLINE vf ceil_of(vf x) {
  vf out{};
  for (int i = 0; i < W; ++i) out[i] = __builtin_ceilf(x[i]);
  return out;
}
#endif

FOVEA_INLINE vi trunc_div(vi a, vi b) {
  const vi divided = b == -1 ? wrap(vu{} - bits(a)) : raw_quotient(a, b);
  return b == 0 ? vi{} : divided;
}
FOVEA_INLINE vi trunc_rem(vi a, vi b) {
  const vi rest = wrap(bits(a) - bits(raw_quotient(a, b)) * bits(b));
  const vi without = (b == 0) | (b == -1);
  return without ? vi{} : rest;
}
FOVEA_INLINE vi signs_differ(vi a, vi b) { return (a ^ b) < 0; }
FOVEA_INLINE vi floor_div(vi a, vi b) {
  const vi rest = trunc_rem(a, b);
  return trunc_div(a, b) + ((rest != 0) & signs_differ(a, b));
}
FOVEA_INLINE vi floor_mod(vi a, vi b) {
  const vi rest = trunc_rem(a, b);
  return rest + ((rest != 0) & signs_differ(rest, b) & b);
}

// NaN gives 0; out of range saturates; otherwise towards zero.
FOVEA_INLINE vi to_int(vf x) {
  const vi inside = x >= 2147483648.0f ? splat(INT32_MAX) : cut(x);  // INT_MIN if too small
  return x != x ? vi{} : inside;
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_ISA::strip

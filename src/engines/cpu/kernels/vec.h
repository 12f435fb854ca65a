// A thin vector layer: W floats or 32-bit integers at a time, over the compiler's vector types and
// a handful of intrinsics. Included only by the kernel sources of this folder, once per instruction
// set, inside that set's own namespace: everything here has internal linkage, and nothing of the
// C++ library is used, so that no code for one processor can leak into another's (see isa.h).
//
// a + b, a * b, a < b, m ? a : b work on vectors as they do on numbers. A comparison gives a vi of
// 0 and -1. Nothing is contracted: fma() is the only fused operation.
#pragma once

#include "engines/cpu/kernels/isa.h"

#if FOVEA_ISA_LEVEL > 0
#include "engines/cpu/kernels/vec_x86.h"
#elif FOVEA_NEON
#include "engines/cpu/kernels/vec_neon.h"
#else
#include "engines/cpu/kernels/vec_scalar.h"
#endif

namespace fovea::cpu::FOVEA_ISA {
namespace {

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

// Lanes of a whose numbers have the bit `step` change places with lanes of b that have not.
template <int step>
FOVEA_INLINE void exchange_lanes(vf& a, vf& b) {
  vi low{}, high{};
  for (int i = 0; i < W; ++i) {
    low[i] = (i & step) == 0 ? i : W + i - step;
    high[i] = (i & step) == 0 ? i + step : W + i;
  }
  const vf old = a;
  a = shuffle(old, b, low);
  b = shuffle(old, b, high);
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

}  // namespace
}  // namespace fovea::cpu::FOVEA_ISA

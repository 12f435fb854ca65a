// The types of the vector layer, and what the compiler does for all instruction sets alike.
#pragma once

#include <stdint.h>
#include <string.h>

#include "engines/cpu/kernels/isa.h"

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

// Lane i is all ones if bit i is set.
FOVEA_INLINE vi mask_of_bits(uint32_t bits) {
  const vi one_each = splat(1) << lanes();
  return (splat(static_cast<int32_t>(bits)) & one_each) == one_each;
}

#if FOVEA_ISA_LEVEL == 0  // what plain vectors and NEON do alike
// The second operand if either is NaN.
FOVEA_INLINE vf max_raw(vf a, vf b) { return a > b ? a : b; }
FOVEA_INLINE vf min_raw(vf a, vf b) { return a < b ? a : b; }
FOVEA_INLINE vf select_bits(uint32_t bits, vf a, vf b) { return mask_of_bits(bits) ? a : b; }
FOVEA_INLINE vf load_first(const float* p, int n) {
  vf out{};
  for (int i = 0; i < n; ++i) out[i] = p[i];
  return out;
}
FOVEA_INLINE void store_first(float* p, vf x, int n) {
  for (int i = 0; i < n; ++i) p[i] = x[i];
}
#endif

}  // namespace
}  // namespace fovea::cpu::FOVEA_ISA

// What plain vectors and NEON do alike.
#pragma once

#include "engines/cpu/kernels/vec_base.h"

namespace fovea::cpu::FOVEA_ISA {
namespace {

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

}  // namespace
}  // namespace fovea::cpu::FOVEA_ISA

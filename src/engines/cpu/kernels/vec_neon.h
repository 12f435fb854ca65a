// The vector operations of NEON, as every AArch64 processor has them. 16-bit types are converted
// when they are read and written: arithmetic in f16 would add up in f16.
#pragma once

#include <arm_neon.h>

#include "engines/cpu/kernels/vec_base.h"

namespace fovea::cpu::FOVEA_ISA {
namespace {

FOVEA_INLINE vf fma(vf a, vf b, vf c) {
  return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}
FOVEA_INLINE vf round_even(vf x) { return (vf)vrndnq_f32((float32x4_t)x); }
FOVEA_INLINE vf sqrt_of(vf x) { return (vf)vsqrtq_f32((float32x4_t)x); }
FOVEA_INLINE uint32_t bits_of(vi mask) {
  const vi one_each = splat(1) << lanes();
  return vaddvq_u32((uint32x4_t)((mask < 0) & one_each));
}
FOVEA_INLINE float half_value(uint16_t bits) {
  __fp16 half;
  memcpy(&half, &bits, sizeof half);
  return half;
}
FOVEA_INLINE vf load_half(const uint16_t* p) {
  return (vf)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
FOVEA_INLINE vf load_bfloat(const uint16_t* p) { return (vf)vshll_n_u16(vld1_u16(p), 16); }
FOVEA_INLINE void store_half(uint16_t* p, vf x) {
  vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)x)));
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_ISA

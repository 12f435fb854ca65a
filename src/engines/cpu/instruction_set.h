// The kernels of an instruction set that this processor's family may have, by its name in
// Device::isa.
#pragma once

#include <string_view>

#include "engines/cpu/kernels/table.h"

namespace fovea::cpu {

inline const KernelTable& kernels_named([[maybe_unused]] std::string_view isa) {
#if defined(__x86_64__)
  for (const KernelTable* one : {&avx512_bf16_kernels, &avx512_kernels, &avx2_kernels}) {
    if (one->isa == isa) return *one;
  }
#elif defined(__aarch64__)
  if (isa == neon_kernels.isa) return neon_kernels;
#endif
  return scalar_kernels;
}

}  // namespace fovea::cpu

// What kernels get of a call: device::Call and the words behind it, packed from Bindings. Nothing
// is allocated.
#pragma once

#include "attention/bindings.h"
#include "engines/jit/device/arguments.h"
#include "engines/jit/memory.h"

namespace fovea::jit {

// A kernel takes so many bytes of parameters, from CUDA 12.1 on.
inline constexpr int most_argument_bytes = 32764;
inline constexpr int most_words =
    (most_argument_bytes - static_cast<int>(device::map_count * sizeof(device::TensorMap)) -
     static_cast<int>(sizeof(device::Call))) /
    8;

// Kernels that take no maps get what follows them.
struct Arguments {
  device::TensorMap maps[device::map_count];
  device::Call call;
  long long words[most_words];
};

void pack(const Prepared& prepared, const Bindings& bindings, const Memory& memory,
          Arguments& arguments);

// The widest copy that the address and the strides of dimensions with more than one element allow.
int copy_bytes(const void* data, const Strides& strides, const std::array<std::int64_t, 4>& extents,
               std::int64_t element_bytes);

}  // namespace fovea::jit

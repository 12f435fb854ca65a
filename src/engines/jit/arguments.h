// What kernels get of a call: device::Call and the words behind it, packed from Bindings. Nothing
// is allocated. Used by plan.
#pragma once

#include "attention/bindings.h"
#include "engines/jit/device/arguments.h"
#include "engines/jit/memory.h"

namespace fovea::jit {

// A kernel takes so many bytes of parameters, from CUDA 12.1 on.
inline constexpr int most_argument_bytes = 32764;
inline constexpr int most_words =
    (most_argument_bytes - static_cast<int>(sizeof(device::Call)) -
     static_cast<int>(device::map_count * sizeof(device::TensorMap))) /
    8;

struct Arguments {
  device::Call call;
  long long words[most_words];
};

// Kernels without maps get `rest` alone.
using MappedArguments = device::MappedArgumentsOf<Arguments>;

void pack(const Prepared& prepared, const Bindings& bindings, const Memory& memory,
          Arguments& arguments);

// Maps of a backward's tensors, by tiles of hopper/backward.h.
void write_maps(const device::Call& call, device::TensorMap (&maps)[device::map_count]);

// The widest copy that the address and the strides of dimensions with more than one element allow.
int copy_bytes(const void* data, const Strides& strides, const std::array<std::int64_t, 4>& extents,
               std::int64_t element_bytes);

}  // namespace fovea::jit

// Small kernels of Fovea's own, kept as PTX text and loaded through the driver. Used by engines
// that need a few numbers computed on the GPU before a library's kernels can run.
#pragma once

#include <array>
#include <span>

#include "cuda/driver.h"

namespace fovea::cuda {

// PTX text and the names of its kernels. Static: compared by address.
struct KernelSource {
  const char* ptx;
  std::span<const char* const> names;
};

inline constexpr std::size_t most_kernels = 4;     // of one source
using Kernels = std::array<Handle, most_kernels>;  // CUfunction, in the order of the names

// Loads them into the current context, once for the process; never unloaded. Must not be called for
// the first time in a context while a CUDA graph is captured. After that it takes no lock on
// threads that have asked before.
const Kernels& kernels_of(const KernelSource& source);

struct Grid {
  unsigned x = 1, y = 1, z = 1;
  unsigned threads = 128;
};

// `parameters` is what the kernel takes, one struct, copied when this returns.
void launch(Handle kernel, const Grid& grid, const void* parameters, Handle stream,
            unsigned shared_bytes = 0);

}  // namespace fovea::cuda

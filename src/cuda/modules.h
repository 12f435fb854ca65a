// Compiled kernels that are loaded into a GPU's context: once for the process by what is in them,
// and never unloaded, since a CUDA graph that was captured may launch them when their plan is long
// gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "cuda/driver.h"

namespace fovea::cuda {

// Loads a cubin or PTX into the current context, or finds it there. Throws DeviceError if the
// driver does not take it.
Handle module_of(std::span<const std::uint8_t> image);

// A kernel of it that may have so many bytes of dynamic shared memory.
Handle kernel_of(Handle module, const std::string& name, int shared_bytes);

struct ModuleStatistics {
  std::size_t modules = 0, bytes = 0;
};
ModuleStatistics module_statistics();  // loaded in this process

}  // namespace fovea::cuda

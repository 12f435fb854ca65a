// Fovea's own kernels in a GPU's context: those that an engine compiled, and small ones stored as
// PTX text, which compute a few numbers before a library's kernels can run. They are never
// unloaded, since a captured CUDA graph may launch them after their plan is gone. Plans load them
// when they are made, since loading is not allowed during the capture of a CUDA graph.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "cuda/driver.h"

namespace fovea::cuda {

struct Grid {
  unsigned x = 1, y = 1, z = 1;
  unsigned threads = 128;
};

// `parameters` is what the kernel takes, one struct, copied when this returns. `overlaps`: the
// kernel waits itself until those before it have ended (griddepcontrol.wait of sm_90 and newer), so
// that the driver may start it earlier.
void launch(Handle kernel, const Grid& grid, const void* parameters, Handle stream,
            unsigned shared_bytes = 0, bool overlaps = false);

// Loads a cubin or PTX into the current context, or finds it there by its content. Throws
// DeviceError if the driver refuses it.
Handle module_of(std::span<const std::uint8_t> image);

// A kernel of the module, which may use `shared_bytes` of dynamic shared memory.
Handle kernel_of(Handle module, const std::string& name, int shared_bytes);

}  // namespace fovea::cuda

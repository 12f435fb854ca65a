// Compiles kernels with the host's compiler and runs them on the host: all blocks of a grid, one
// after the other in an order drawn from FOVEA_TEST_SEED.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tests/jit_host/block.h"

namespace fovea::on_host {

// The bytes of a shared object, from the text that NVRTC would get. `source` includes
// "primitives.h", or has its text in it; its kernels are `extern "C" __global__ void
// name(parameters by value)`. Throws std::runtime_error with what the compiler says. Results are
// kept by their content in a folder of the user's caches, which nothing relies on.
std::string compile_on_host(const std::string& source);

struct Launch {
  unsigned x = 1, y = 1, z = 1;  // blocks
  unsigned threads = 32;
  unsigned shared_bytes = 0;
};

// Returns what the kernel did wrong, "" if nothing. Threads that launch at once wait for each
// other.
std::string launch(Kernel kernel, void** parameters, const Launch& grid);

// The shared object of a kernel. It stays loaded for the rest of the process.
class Module {
 public:
  explicit Module(std::string_view image);     // throws std::runtime_error
  Kernel find(const std::string& name) const;  // null: not there

 private:
  void* library_ = nullptr;
};

// The size of a shared object in memory; 0 if it is none, or one for another machine.
std::size_t image_bytes(const void* image);

}  // namespace fovea::on_host

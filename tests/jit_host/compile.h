// Kernels compiled by the host's compiler: from the text that NVRTC would get to a shared object
// that Module loads. Results are kept by their content in a folder of the user's caches, which
// nothing relies on.
#pragma once

#include <string>

namespace fovea::on_host {

// The bytes of a shared object. `source` includes "primitives.h", or has its text in it; its
// kernels are `extern "C" __global__ void name(parameters by value)`. Throws std::runtime_error
// with what the compiler says.
std::string compile_on_host(const std::string& source);

}  // namespace fovea::on_host

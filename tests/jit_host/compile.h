// Compiles kernels with the host's compiler: from the text that NVRTC would get to a shared object
// that Module loads. Objects are kept in a folder of the user's cache, which may be deleted.
#pragma once

#include <string>

namespace fovea::on_host {

// Returns the bytes of a shared object. `source` includes "primitives.h" or contains its text. Its
// kernels are `extern "C" __global__ void name(parameters by value)`. Throws std::runtime_error
// with the messages of the compiler.
std::string compile_on_host(const std::string& source);

}  // namespace fovea::on_host

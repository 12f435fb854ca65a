// The headers of device/ as texts, put into the library by the build (cmake/embed.cmake).
#pragma once

#include <span>

#include "cuda/nvrtc.h"

namespace fovea::jit {

std::span<const cuda::NamedText> device_headers();

}  // namespace fovea::jit

// The headers of device/ as texts, put into the library by the build (cmake/embed.cmake).
#pragma once

#include <span>
#include <string_view>

#include "cuda/nvrtc.h"

namespace fovea::jit {

std::span<const cuda::NamedText> device_headers();

inline bool has_header(std::string_view name) {
  for (const cuda::NamedText& header : device_headers()) {
    if (name == header.name) return true;
  }
  return false;
}

}  // namespace fovea::jit

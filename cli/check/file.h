// Writing a file so that it is there whole or not at all: the bytes go to a temporary name first.
#pragma once

#include <string>
#include <string_view>

namespace fovea::cli {

// Throws std::runtime_error "cannot write PATH: REASON". Devices and pipes are written to, symbolic
// links kept.
void write_file(const std::string& path, std::string_view bytes);

}  // namespace fovea::cli

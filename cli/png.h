// Writes a Canvas as a PNG file through libpng; `fovea show -o` is the only caller.
#pragma once

#include <string>

#include "canvas.h"

namespace fovea::cli {

// Throws std::runtime_error with the path and the reason.
void write_png(const Canvas& canvas, const std::string& path);

}  // namespace fovea::cli

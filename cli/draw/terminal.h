// The figure as text for a terminal: block characters, axes, legend and tile counts. `fovea show`
// without -o prints it; colours and legend are those of the figure in a file.
#pragma once

#include <string>

#include "cli/draw/picture.h"

namespace fovea::cli {

// At most `columns` wide and `rows` lines high (at least 24 x 12, else std::invalid_argument).
// With color: half blocks in 24-bit colour. Without: quadrant blocks for a mask, shades for scores.
std::string draw_text(const Picture& picture, int columns, int rows, bool color);

}  // namespace fovea::cli

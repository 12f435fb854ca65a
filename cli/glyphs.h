// The shapes of the stroke font as path texts; only font.cpp reads this table.
// A path is a list of commands: M move, L line, D dot, C cubic Bezier (two controls, end), and the
// two quarter turns that most letters are made of: V leaves vertically and arrives horizontally,
// H leaves horizontally and arrives vertically. x counts from the left end of the ink.
#pragma once

#include <span>

namespace fovea::cli {

struct GlyphShape {
  char32_t code;
  double left, width, right;  // space before, ink, space after
  const char* path;
};

std::span<const GlyphShape> glyph_shapes();

}  // namespace fovea::cli

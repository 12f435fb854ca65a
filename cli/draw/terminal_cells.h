// The map part of the terminal drawing: a Picture as lines of block characters.
// Only terminal.cpp calls this; it puts axes and words around.
#pragma once

#include <string>
#include <vector>

#include "cli/draw/cells.h"

namespace fovea::cli {

constexpr const char* ansi_reset = "\033[0m";
std::string ansi_text(Color color);
std::string ansi_behind(Color color);

// A terminal character is about twice as high as wide, so its two halves are square pixels.
struct BlockMap {
  int columns = 0, pixels = 0;  // pixels down: two in a line, the last line may hold one
  int lines() const { return (pixels + 1) / 2; }
};

// The largest map of square cells that fits; whole pixels per cell where they do.
BlockMap fit_blocks(const Picture& picture, int columns, int lines);

// One string per line, without line ends.
std::vector<std::string> color_lines(const Picture& picture, const Summary& summary, BlockMap size);
std::vector<std::string> plain_lines(const Picture& picture, const Summary& summary, BlockMap size);

// The character for a value at t in [0, 1] in plain_lines.
const char* shade(double t);

}  // namespace fovea::cli

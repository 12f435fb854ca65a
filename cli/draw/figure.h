// The figure as a file: where everything goes, then the map with its tiles, the axes, the title and
// the legend. Cairo draws it; in a program without Cairo these functions say what to install.
#pragma once

#include <string>

#include "cli/draw/picture.h"

namespace fovea::cli {

enum class FileKind { Png, Svg, Pdf };

// By the ending of its name. Throws std::invalid_argument for another one.
FileKind file_kind(const std::string& path);

// The bytes of the file. scale: pixels per point, 2 for printing.
std::string draw_figure(const Picture& picture, FileKind kind, double scale = 1);

// False if no font is installed: Cairo then writes with thin letters of its own.
bool has_font();

// Where the top left cell begins, in pixels.
struct Point {
  double x = 0, y = 0;
};
Point map_origin(const Picture& picture, double scale = 1);

}  // namespace fovea::cli

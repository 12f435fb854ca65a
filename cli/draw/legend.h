// What the legend says: kept and masked, tile classes with counts. The figure and the terminal
// write the same rows.
#pragma once

#include <string>
#include <vector>

#include "cli/draw/cells.h"

namespace fovea::cli {

enum class Swatch { Heading, Plain, TileEmpty, TileFull, TileMixed };

struct LegendRow {
  Swatch swatch;
  Color color;
  std::string name;    // "full"
  std::string detail;  // "28 (43.8 %)"
};

std::vector<LegendRow> legend_rows(const Picture& picture, const Summary& summary);

}  // namespace fovea::cli

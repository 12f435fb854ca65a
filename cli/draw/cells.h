// From a Picture to colours: what is counted in the legend, the colour of every cell, and the map
// at any size by area averaging. Shared by the figure and the terminal, so that both agree.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "cli/draw/colormap.h"
#include "cli/draw/picture.h"

namespace fovea::cli {

struct Summary {
  std::size_t kept = 0, cells = 0;
  std::size_t nan = 0, minus_inf = 0, plus_inf = 0;  // among kept cells
  bool has_values = false;                           // a kept cell with a finite score
  double lo = 0, hi = 0;                             // ends of the colour map; lo < hi
  bool diverging = false;                            // then lo == -hi
  std::array<std::size_t, 3> tiles{};                // by TileClass
  std::size_t tile_count = 0;
};

Summary summarize(const Picture& picture);

// Where a value lies on the colour map; lo and hi are its ends.
Color value_color(const Summary& summary, double value);

// "12.5 %"; a share that would round to 0 or 100 without being it says "<0.1 %" or ">99.9 %".
std::string percent(std::size_t part, std::size_t whole);
// "nan, -inf": the kinds that occur, or nothing.
std::string not_finite_kinds(const Summary& summary);

class CellColors {
 public:
  // picture and summary must outlive this.
  CellColors(const Picture& picture, const Summary& summary);

  Color at(int row, int column) const;
  // The map as [height, width] colours; each is the average over the cells it covers.
  std::vector<Color> resample(int width, int height) const;

 private:
  bool in_mixed_tile(int row, int column) const;

  const Picture& picture_;
  const Summary& summary_;
  std::vector<std::size_t> tile_row_, tile_column_;
  std::size_t tiles_across_ = 0;
};

}  // namespace fovea::cli

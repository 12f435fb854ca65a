#include "cli/draw/terminal_cells.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace fovea::cli {
namespace {

// A lone cell need not fill the screen.
constexpr double most_pixels_per_cell = 8;

// Indexed by bits: 1 top left, 2 top right, 4 bottom left, 8 bottom right.
constexpr const char* quadrants[16] = {" ", "▘", "▝", "▀", "▖", "▌", "▞", "▛",
                                       "▗", "▚", "▐", "▜", "▄", "▙", "▟", "█"};

std::string ansi(int layer, Color c) {
  return "\033[" + std::to_string(layer) + ";2;" + std::to_string(c.r) + ";" + std::to_string(c.g) +
         ";" + std::to_string(c.b) + "m";
}

// The cells under pixel i of `pixels`; never none.
struct Range {
  int first, last;
};

Range cells_under(int i, int pixels, int cells) {
  const auto lo = static_cast<int>(std::int64_t{i} * cells / pixels);
  const auto hi = static_cast<int>((std::int64_t{i} + 1) * cells / pixels);
  return {lo, std::max(lo + 1, hi)};
}

// What a rectangle of cells holds, for drawing without colours.
struct Tally {
  int cells = 0, kept = 0, values = 0;
  double sum = 0;
};

Tally tally(const Picture& p, Range rows, Range columns) {
  Tally t;
  for (int q = rows.first; q < rows.last; ++q) {
    for (int k = columns.first; k < columns.last; ++k) {
      const std::size_t i = static_cast<std::size_t>(q) * static_cast<std::size_t>(p.skv) +
                            static_cast<std::size_t>(k);
      ++t.cells;
      if (!p.keep.empty() && p.keep[i] == 0) continue;
      ++t.kept;
      if (p.score.empty() || !std::isfinite(p.score[i])) continue;
      ++t.values;
      t.sum += p.score[i];
    }
  }
  return t;
}

int side_pixels(int cells, double scale) {
  return std::max(1, static_cast<int>(std::lround(cells * scale)));
}

std::string mask_character(const Picture& p, BlockMap size, int line, int column) {
  unsigned bits = 0;
  for (int part = 0; part < 4; ++part) {
    const int down = 2 * line + part / 2, across = 2 * column + part % 2;
    if (down >= size.pixels) continue;
    const Tally t = tally(p, cells_under(down, size.pixels, p.sq),
                          cells_under(across, 2 * size.columns, p.skv));
    if (2 * t.kept >= t.cells && t.kept > 0) bits |= 1u << part;
  }
  return quadrants[bits];
}

std::string score_character(const Summary& s, const Tally& t) {
  if (t.kept * 2 < t.cells) return " ";
  if (t.values == 0) return "×";
  return shade((t.sum / t.values - s.lo) / (s.hi - s.lo));
}

}  // namespace

std::string ansi_text(Color color) { return ansi(38, color); }
std::string ansi_behind(Color color) { return ansi(48, color); }

const char* shade(double t) {
  constexpr const char* shades[] = {"░", "▒", "▓", "█"};
  return shades[std::clamp(static_cast<int>(t * 4), 0, 3)];
}

BlockMap fit_blocks(const Picture& p, int columns, int lines) {
  double scale = std::min(static_cast<double>(columns) / p.skv, 2.0 * lines / p.sq);
  if (scale > 1) scale = std::min(std::floor(scale), most_pixels_per_cell);
  int w = side_pixels(p.skv, scale), h = side_pixels(p.sq, scale);
  // As in the figure, a thin strip is stretched until it can be read.
  const int least = std::max(w, h) / 4;
  w = std::clamp(std::max(w, least), 1, columns);
  h = std::clamp(std::max(h, least), 1, 2 * lines);
  return {w, h};
}

std::vector<std::string> color_lines(const Picture& picture, const Summary& summary,
                                     BlockMap size) {
  const std::vector<Color> pixels =
      CellColors(picture, summary).resample(size.columns, size.pixels);
  const auto width = static_cast<std::size_t>(size.columns);
  std::vector<std::string> lines;
  for (std::size_t y = 0; y < static_cast<std::size_t>(size.lines()); ++y) {
    std::string line;
    for (std::size_t x = 0; x < width; ++x) {
      const std::size_t upper = 2 * y * width + x, lower = upper + width;
      // Repeating unchanged colours would make the text several times longer.
      if (x == 0 || pixels[upper] != pixels[upper - 1]) line += ansi_text(pixels[upper]);
      if (lower < pixels.size() && (x == 0 || pixels[lower] != pixels[lower - 1])) {
        line += ansi_behind(pixels[lower]);
      }
      line += "▀";
    }
    lines.push_back(line + ansi_reset);
  }
  return lines;
}

std::vector<std::string> plain_lines(const Picture& p, const Summary& s, BlockMap size) {
  std::vector<std::string> lines;
  for (int y = 0; y < size.lines(); ++y) {
    std::string line;
    for (int x = 0; x < size.columns; ++x) {
      line += p.score.empty() ? mask_character(p, size, y, x)
                              : score_character(s, tally(p, cells_under(y, size.lines(), p.sq),
                                                         cells_under(x, size.columns, p.skv)));
    }
    lines.push_back(line);
  }
  return lines;
}

}  // namespace fovea::cli

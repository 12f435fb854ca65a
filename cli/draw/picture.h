// A mask or a heat map as plain data, with its colours and the words of its legend. `fovea show`
// fills a Picture and draws it through figure.h into a file or through terminal.h into text; both
// take colours and words from here, so that they agree.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace fovea::cli {

enum class TileClass : unsigned char { Empty, Full, Mixed };

struct Picture {
  std::string title;                // usually the formula; shrunk, wrapped or elided when long
  std::string subtitle;             // for instance "b=0 h=3  256 x 256"
  int sq = 0, skv = 0;              // rows and columns of the map, at least 1 each
  std::vector<unsigned char> keep;  // [sq, skv], not 0 = kept; empty vector = everything kept
  std::vector<float> score;         // [sq, skv] or empty; may hold nan and inf
  int tile_q = 0, tile_k = 0;       // in positions; 0 = no tile overlay
  std::vector<TileClass> tiles;     // [ceil(span_q / tile_q), ceil(span_k / tile_k)]
  // Positions that the rows and columns stand for when the caller sampled a larger problem; 0 = as
  // many as there are rows or columns. Axes and tiles count in positions.
  int span_q = 0, span_k = 0;
};

int positions_q(const Picture& picture);
int positions_k(const Picture& picture);

// The size of the map in pixels, `scale` of them to a point: whole cells if they fit, otherwise
// averaged.
struct MapSize {
  int width = 0, height = 0;
};
MapSize map_size(const Picture& picture, double scale = 1);

// The colours of pictures: those with a meaning, and the two colour maps of scores.
// bindings/python/fovea/picture.py has the same ones; a test compares them.
struct Color {
  unsigned char r = 0, g = 0, b = 0;
  bool operator==(const Color&) const = default;
};

// a at t = 0, b at t = 1.
Color mix(Color a, Color b, double t);

namespace palette {
constexpr Color paper{255, 255, 255};
constexpr Color ink{31, 41, 51};
constexpr Color muted{97, 110, 124};
constexpr Color kept{42, 105, 172};
constexpr Color kept_in_mixed{82, 140, 201};  // lighter, so that full tiles stand out
constexpr Color masked{232, 235, 240};
constexpr Color masked_in_mixed{253, 230, 203};
constexpr Color mixed_line{224, 123, 0};
constexpr Color masked_score{218, 221, 226};  // darker: white is a value of the diverging map
constexpr Color not_finite{214, 51, 143};
}  // namespace palette

// t in [0, 1]: dark indigo over teal to yellow.
Color sequential(double t);
// t in [-1, 1]: blue over white to red.
Color diverging(double t);

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

// The legend: kept and masked, tile classes with counts.
enum class Swatch { Heading, Plain, TileEmpty, TileFull, TileMixed };

struct LegendRow {
  Swatch swatch;
  Color color;
  std::string name;    // "full"
  std::string detail;  // "28 (43.8 %)"
};

std::vector<LegendRow> legend_rows(const Picture& picture, const Summary& summary);

}  // namespace fovea::cli

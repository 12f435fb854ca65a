// A mask or a heat map as plain data. `fovea show` fills a Picture and draws it through figure.h
// into a file or through terminal.h into text.
#pragma once

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

}  // namespace fovea::cli

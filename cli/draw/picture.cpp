#include "picture.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>

#include "cells.h"

namespace fovea::cli {
namespace {

[[noreturn]] void refuse(const std::string& field, std::int64_t value, const std::string& rule) {
  throw std::invalid_argument("picture: " + field + " is " + std::to_string(value) + ", but " +
                              rule);
}

void check_side(const char* field, int value) {
  if (value < 1) refuse(field, value, "a map needs at least 1 row and 1 column");
  if (value > max_side()) {
    refuse(field, value, "at most " + std::to_string(max_side()) + " can be drawn: sample first");
  }
}

void check_length(const char* field, std::size_t length, std::int64_t expected, const char* shape) {
  if (static_cast<std::int64_t>(length) == expected) return;
  refuse(std::string(field) + ".size()", static_cast<std::int64_t>(length),
         std::string(shape) + " is " + std::to_string(expected));
}

void check_tiles(const Picture& p) {
  if (p.tile_q < 0) refuse("tile_q", p.tile_q, "a tile size is positive, or 0 for no tiles");
  if (p.tile_k < 0) refuse("tile_k", p.tile_k, "a tile size is positive, or 0 for no tiles");
  if ((p.tile_q == 0) != (p.tile_k == 0)) {
    if (p.tile_q == 0) refuse("tile_q", 0, "tile_k is not: give both or neither");
    refuse("tile_k", 0, "tile_q is not: give both or neither");
  }
  if (p.tile_q == 0) return check_length("tiles", p.tiles.size(), 0, "its length without tiles");
  const std::int64_t down = (std::int64_t{positions_q(p)} + p.tile_q - 1) / p.tile_q;
  const std::int64_t across = (std::int64_t{positions_k(p)} + p.tile_k - 1) / p.tile_k;
  check_length("tiles", p.tiles.size(), down * across, "ceil(q / tile_q) * ceil(k / tile_k)");
  for (const TileClass c : p.tiles) {
    if (c > TileClass::Mixed) {
      refuse("a tile class", static_cast<int>(c), "it must be Empty, Full or Mixed (0, 1, 2)");
    }
  }
}

// Whole pixels per cell or whole cells per pixel, which keeps edges crisp; zeros when neither comes
// within a quarter of the target.
struct Ratio {
  int pixels = 0, cells = 0;
};

Ratio whole_ratio(int cells, int target) {
  // Beyond a quarter of the target a cell is a poster, not a cell.
  if (cells <= target * 5 / 4) return {std::clamp(target / cells, 1, std::max(1, target / 4)), 1};
  for (int f = 2; f <= cells * 5 / (4 * target); ++f) {
    if (cells % f == 0 && cells / f <= target * 5 / 4) return {1, f};
  }
  return {};
}

}  // namespace

int max_side() { return 4096; }

void check(const Picture& p) {
  check_side("sq", p.sq);
  check_side("skv", p.skv);
  if (p.span_q != 0 && p.span_q < p.sq) refuse("span_q", p.span_q, "it is 0 or at least sq");
  if (p.span_k != 0 && p.span_k < p.skv) refuse("span_k", p.span_k, "it is 0 or at least skv");
  const std::int64_t cells = std::int64_t{p.sq} * p.skv;
  if (!p.keep.empty()) check_length("keep", p.keep.size(), cells, "sq * skv");
  if (!p.score.empty()) check_length("score", p.score.size(), cells, "sq * skv");
  check_tiles(p);
}

MapSize map_size(const Picture& picture, const Style& style) {
  const int target = std::max(16, static_cast<int>(std::lround(style.map_side * style.scale)));
  const int longer = std::max(picture.sq, picture.skv), shorter = std::min(picture.sq, picture.skv);
  const Ratio ratio = whole_ratio(longer, target);
  int long_side = target, short_side = 0;
  if (ratio.pixels > 0) {
    long_side = longer * ratio.pixels / ratio.cells;
    if (shorter % ratio.cells == 0) short_side = shorter * ratio.pixels / ratio.cells;
  }
  if (short_side == 0) {
    short_side = static_cast<int>(std::lround(static_cast<double>(shorter) * long_side / longer));
  }
  // A strip of 64 by 4096 would be a thread: the short axis is stretched to stay readable.
  const int least = target / 4;
  if (short_side < least)
    short_side = shorter <= least ? (least + shorter - 1) / shorter * shorter : least;
  // A stretched short side never overtakes the long one.
  short_side = std::min(short_side, std::max(long_side, least));
  return picture.sq >= picture.skv ? MapSize{short_side, long_side}
                                   : MapSize{long_side, short_side};
}

}  // namespace fovea::cli

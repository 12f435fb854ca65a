#include "cli/draw/picture.h"

#include <algorithm>
#include <cmath>

namespace fovea::cli {
namespace {

constexpr double longer_side = 640;  // about, of the map, in points

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

int positions_q(const Picture& picture) { return picture.span_q > 0 ? picture.span_q : picture.sq; }

int positions_k(const Picture& picture) {
  return picture.span_k > 0 ? picture.span_k : picture.skv;
}

MapSize map_size(const Picture& picture, double scale) {
  const int target = std::max(16, static_cast<int>(std::lround(longer_side * scale)));
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

#include "cli/draw/picture.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "cli/draw/labels.h"

namespace fovea::cli {
namespace {

constexpr double longer_side = 640;  // about, of the map, in points

// Whole pixels per cell or whole cells per pixel, which keeps edges crisp; zeros when neither comes
// within a quarter of the target.
struct Ratio {
  int pixels = 0, cells = 0;
};

Ratio whole_ratio(int cells, int target) {
  // A cell larger than a quarter of the target would look like a poster.
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
  // A map of 64 by 4096 would be a thin line: the short axis is stretched to stay readable.
  const int least = target / 4;
  if (short_side < least)
    short_side = shorter <= least ? (least + shorter - 1) / shorter * shorter : least;
  // A stretched short side never overtakes the long one.
  short_side = std::min(short_side, std::max(long_side, least));
  return picture.sq >= picture.skv ? MapSize{short_side, long_side}
                                   : MapSize{long_side, short_side};
}

namespace {

std::size_t index_of(const Picture& p, int row, int column) {
  return static_cast<std::size_t>(row) * static_cast<std::size_t>(p.skv) +
         static_cast<std::size_t>(column);
}

// An end that nearly touches a round tick is moved onto it, so that softcap(30) shows its 30.
double onto_tick(double end, double outward, double range) {
  const double step = value_step(range, value_tick_count);
  const double tick = outward * std::ceil(outward * end / step - 1e-9) * step + 0.0;  // no -0
  return std::fabs(tick - end) <= 0.04 * range ? tick : end;
}

void settle_range(Summary& s) {
  if (!s.has_values) {
    s.lo = 0;
    s.hi = 1;
    return;
  }
  s.diverging = s.lo < 0 && s.hi > 0;
  if (s.diverging) {
    s.hi = std::max(-s.lo, s.hi);
    s.hi = onto_tick(s.hi, 1, 2 * s.hi);
    s.lo = -s.hi;
  } else if (s.lo == s.hi) {
    // A constant still needs an axis: half a unit, or half the value, to either side.
    const double half = s.lo == 0 ? 0.5 : std::fabs(s.lo) / 2;
    s.lo -= half;
    s.hi += half;
  } else {
    const double range = s.hi - s.lo;
    s.hi = onto_tick(s.hi, 1, range);
    s.lo = onto_tick(s.lo, -1, range);
  }
}

void count_scores(const Picture& p, Summary& s) {
  for (std::size_t i = 0; i < p.score.size(); ++i) {
    if (!p.keep.empty() && p.keep[i] == 0) continue;
    const double v = p.score[i];
    if (std::isnan(v)) {
      ++s.nan;
    } else if (std::isinf(v)) {
      ++(v < 0 ? s.minus_inf : s.plus_inf);
    } else {
      s.lo = s.has_values ? std::min(s.lo, v) : v;
      s.hi = s.has_values ? std::max(s.hi, v) : v;
      s.has_values = true;
    }
  }
  settle_range(s);
}

std::vector<std::size_t> tile_indices(int cells, int positions, int tile) {
  std::vector<std::size_t> indices;
  for (int i = 0; i < cells; ++i) {
    indices.push_back(static_cast<std::size_t>(std::int64_t{i} * positions / cells / tile));
  }
  return indices;
}

// The cells that one output pixel covers on one axis, with weights that add up to `cells`.
struct Cover {
  int first = 0;
  std::vector<std::int64_t> weights;
};

std::vector<Cover> covers(int pixels, int cells) {
  std::vector<Cover> result(static_cast<std::size_t>(pixels));
  for (int i = 0; i < pixels; ++i) {
    // In units of 1 / (pixels * cells) of the axis, everything is a whole number.
    const std::int64_t lo = std::int64_t{i} * cells, hi = lo + cells;
    Cover& cover = result[static_cast<std::size_t>(i)];
    cover.first = static_cast<int>(lo / pixels);
    for (std::int64_t c = cover.first; c * pixels < hi; ++c) {
      cover.weights.push_back(std::min(hi, (c + 1) * pixels) - std::max(lo, c * pixels));
    }
  }
  return result;
}

}  // namespace

Summary summarize(const Picture& picture) {
  Summary s;
  s.cells = static_cast<std::size_t>(picture.sq) * static_cast<std::size_t>(picture.skv);
  s.kept = s.cells;
  if (!picture.keep.empty()) {
    s.kept -= static_cast<std::size_t>(std::count(picture.keep.begin(), picture.keep.end(), 0));
  }
  if (!picture.score.empty()) count_scores(picture, s);
  for (const TileClass c : picture.tiles) ++s.tiles.at(static_cast<std::size_t>(c));
  s.tile_count = picture.tiles.size();
  return s;
}

Color value_color(const Summary& summary, double value) {
  if (summary.diverging) return diverging(value / summary.hi);
  return sequential((value - summary.lo) / (summary.hi - summary.lo));
}

std::string percent(std::size_t part, std::size_t whole) {
  if (whole == 0 || part == 0) return "0 %";
  if (part == whole) return "100 %";
  const double share = 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  if (share < 0.05) return "<0.1 %";
  if (share >= 99.95) return ">99.9 %";
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", share);
  return text;
}

std::string not_finite_kinds(const Summary& summary) {
  std::string kinds;
  const auto add = [&](std::size_t count, const char* name) {
    if (count > 0) kinds += (kinds.empty() ? "" : ", ") + std::string(name);
  };
  add(summary.nan, "nan");
  add(summary.minus_inf, "-inf");
  add(summary.plus_inf, "inf");
  return kinds;
}

CellColors::CellColors(const Picture& picture, const Summary& summary)
    : picture_(picture), summary_(summary) {
  if (!picture.tiles.empty()) {
    tile_row_ = tile_indices(picture.sq, positions_q(picture), picture.tile_q);
    tile_column_ = tile_indices(picture.skv, positions_k(picture), picture.tile_k);
    tiles_across_ = tile_column_.back() + 1;
  }
}

bool CellColors::in_mixed_tile(int row, int column) const {
  if (tiles_across_ == 0) return false;
  const std::size_t tile = tile_row_[static_cast<std::size_t>(row)] * tiles_across_ +
                           tile_column_[static_cast<std::size_t>(column)];
  return picture_.tiles[tile] == TileClass::Mixed;
}

Color CellColors::at(int row, int column) const {
  const std::size_t i = index_of(picture_, row, column);
  const bool kept = picture_.keep.empty() || picture_.keep[i] != 0;
  if (picture_.score.empty()) {
    const bool mixed = in_mixed_tile(row, column);
    if (kept) return mixed ? palette::kept_in_mixed : palette::kept;
    return mixed ? palette::masked_in_mixed : palette::masked;
  }
  if (!kept) return palette::masked_score;
  const double v = picture_.score[i];
  return std::isfinite(v) ? value_color(summary_, v) : palette::not_finite;
}

std::vector<Color> CellColors::resample(int width, int height) const {
  const std::vector<Cover> rows = covers(height, picture_.sq),
                           columns = covers(width, picture_.skv);
  const std::int64_t area = std::int64_t{picture_.sq} * picture_.skv;
  std::vector<Color> map;
  map.reserve(rows.size() * columns.size());
  for (const Cover& row : rows) {
    for (const Cover& column : columns) {
      std::int64_t r = area / 2, g = r, b = r;  // half, so that the division rounds
      for (std::size_t i = 0; i < row.weights.size(); ++i) {
        for (std::size_t j = 0; j < column.weights.size(); ++j) {
          const Color c = at(row.first + static_cast<int>(i), column.first + static_cast<int>(j));
          const std::int64_t w = row.weights[i] * column.weights[j];
          r += w * c.r;
          g += w * c.g;
          b += w * c.b;
        }
      }
      map.push_back({static_cast<unsigned char>(r / area), static_cast<unsigned char>(g / area),
                     static_cast<unsigned char>(b / area)});
    }
  }
  return map;
}

namespace {

// Equal steps of lightness in OKLab, as 0xRRGGBB: equal steps in it look equal, which sRGB does not
// give.
using Ramp = std::array<unsigned, 17>;
constexpr Ramp sequential_ramp{0x360c5c, 0x381e6d, 0x382e7c, 0x343f89, 0x2e5091, 0x276097,
                               0x1f719b, 0x1e809d, 0x22909e, 0x249f9d, 0x2faf98, 0x48bd8f,
                               0x64ca82, 0x85d672, 0xaadf60, 0xd0e64e, 0xf5eb3d};
constexpr Ramp diverging_ramp{0x083b7e, 0x185396, 0x296bae, 0x4384c1, 0x639cd1, 0x86b4dd,
                              0xabcce9, 0xd2e3f2, 0xfafafa, 0xf3dbcd, 0xebbca2, 0xe19c7b,
                              0xd77b55, 0xc85937, 0xb13b24, 0x95221a, 0x790410};

Color color_of(unsigned rgb) {
  return {static_cast<unsigned char>(rgb >> 16), static_cast<unsigned char>(rgb >> 8 & 255),
          static_cast<unsigned char>(rgb & 255)};
}

Color along(const Ramp& ramp, double t) {
  const double at = std::clamp(t, 0.0, 1.0) * (ramp.size() - 1);
  const auto i = std::min(static_cast<std::size_t>(at), ramp.size() - 2);
  return mix(color_of(ramp[i]), color_of(ramp[i + 1]), at - static_cast<double>(i));
}

unsigned char mix_byte(unsigned char a, unsigned char b, double t) {
  return static_cast<unsigned char>(std::lround(a + (b - a) * t));
}

}  // namespace

Color mix(Color a, Color b, double t) {
  t = std::clamp(t, 0.0, 1.0);
  return {mix_byte(a.r, b.r, t), mix_byte(a.g, b.g, t), mix_byte(a.b, b.b, t)};
}

Color sequential(double t) { return along(sequential_ramp, t); }
Color diverging(double t) { return along(diverging_ramp, (t + 1) / 2); }

namespace {

std::string count_text(std::size_t part, std::size_t whole) {
  return std::to_string(part) + " (" + percent(part, whole) + ")";
}

}  // namespace

std::vector<LegendRow> legend_rows(const Picture& picture, const Summary& s) {
  std::vector<LegendRow> rows;
  const bool scored = !picture.score.empty();
  const std::size_t masked = s.cells - s.kept;
  if (!scored) rows.push_back({Swatch::Plain, palette::kept, "kept", percent(s.kept, s.cells)});
  if (!scored || masked > 0) {
    const Color color = scored ? palette::masked_score : palette::masked;
    rows.push_back({Swatch::Plain, color, "masked", percent(masked, s.cells)});
  }
  const std::size_t not_finite = s.nan + s.minus_inf + s.plus_inf;
  if (not_finite > 0) {
    rows.push_back(
        {Swatch::Plain, palette::not_finite, not_finite_kinds(s), percent(not_finite, s.cells)});
  }
  if (s.tile_count == 0) return rows;
  rows.push_back(
      {Swatch::Heading, palette::ink,
       "tiles " + std::to_string(picture.tile_q) + " \u00d7 " + std::to_string(picture.tile_k),
       ""});
  rows.push_back(
      {Swatch::TileEmpty, palette::masked, "empty", count_text(s.tiles[0], s.tile_count)});
  rows.push_back({Swatch::TileFull, palette::kept, "full", count_text(s.tiles[1], s.tile_count)});
  rows.push_back(
      {Swatch::TileMixed, palette::mixed_line, "mixed", count_text(s.tiles[2], s.tile_count)});
  return rows;
}

}  // namespace fovea::cli

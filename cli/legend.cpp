#include "legend.h"

#include <algorithm>
#include <cmath>

#include "colormap.h"
#include "ticks.h"

namespace fovea::cli {
namespace {

// In points.
constexpr double text_size = 15, swatch_side = 16, row_step = 25, heading_gap = 14;
constexpr double swatch_gap = 10, detail_gap = 12;
constexpr double bar_width = 18, bar_title = 26, bar_least = 120, bar_most = 420, bar_gap = 34;
constexpr const char* bar_label = "modified score";

std::string count_text(std::size_t part, std::size_t whole) {
  return std::to_string(part) + " (" + percent(part, whole) + ")";
}

double tick_distance(const std::vector<double>& ticks) {
  return ticks.size() > 1 ? ticks[1] - ticks[0] : 0;
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

Legend::Legend(const Picture& picture, const Summary& summary, double scale)
    : picture_(picture), summary_(summary), scale_(scale), rows_(legend_rows(picture, summary)) {
  has_bar_ = !picture.score.empty() && summary.has_values;
  double detail_width = 0;
  for (const LegendRow& row : rows_) {
    if (row.swatch == Swatch::Heading) {
      width_ = std::max(width_, text_width(row.name, points(text_size)));
      continue;
    }
    name_width_ = std::max(name_width_, text_width(row.name, points(text_size)));
    detail_width = std::max(detail_width, text_width(row.detail, points(text_size)));
  }
  width_ =
      std::max(width_, points(swatch_side + swatch_gap + detail_gap) + name_width_ + detail_width);
  height_ = rows_height();
  if (has_bar_) {
    width_ = std::max(width_, text_width(bar_label, points(text_size)));
    const std::vector<double> ticks = bar_ticks();
    for (const double value : ticks) {
      const std::string text = number_text(value, tick_distance(ticks));
      width_ = std::max(width_, points(bar_width + 11) + text_width(text, points(14)));
    }
    height_ += points(bar_title + bar_least + (rows_.empty() ? 0 : bar_gap));
  }
}

double Legend::points(double length) const { return std::round(length * scale_); }

double Legend::rows_height() const {
  if (rows_.empty()) return 0;
  double height = 0;
  for (const LegendRow& row : rows_) {
    height += points(row_step);
    if (row.swatch == Swatch::Heading && &row != &rows_.front()) height += points(heading_gap);
  }
  return height - points(row_step - swatch_side);
}

void Legend::draw(Canvas& canvas, Rect area) const {
  double y = area.y;
  if (has_bar_) {
    const double below = rows_.empty() ? 0 : rows_height() + points(bar_gap);
    const double top = y + points(bar_title);
    const double tall =
        std::clamp(area.h - points(bar_title) - below, points(bar_least), points(bar_most));
    canvas.text({area.x, y + points(text_size * cap_height / 100)}, bar_label,
                {.size = points(text_size), .color = palette::ink});
    draw_bar(canvas, {area.x, top, points(bar_width), tall});
    y = top + tall + points(bar_gap);
  }
  draw_rows(canvas, {area.x, y});
}

std::vector<double> Legend::bar_ticks() const {
  return value_ticks(summary_.lo, summary_.hi, value_tick_count);
}

void Legend::draw_bar(Canvas& canvas, Rect area) const {
  const auto rows = static_cast<int>(area.h);
  for (int i = 0; i < rows; ++i) {
    const double t = 1 - (i + 0.5) / rows;
    const Color color = value_color(summary_, summary_.lo + t * (summary_.hi - summary_.lo));
    canvas.fill({area.x, area.y + i, area.w, 1}, color);
  }
  const double line = std::max(1.0, points(1));
  canvas.frame({area.x - line, area.y - line, area.w + 2 * line, area.h + 2 * line}, line,
               palette::muted);
  const std::vector<double> ticks = bar_ticks();
  const double step = tick_distance(ticks);
  for (const double value : ticks) {
    const double t = (value - summary_.lo) / (summary_.hi - summary_.lo);
    const double y = std::round(area.y + (1 - t) * (area.h - 1));
    canvas.fill({area.x + area.w + line, y, points(5), line}, palette::muted);
    canvas.text({area.x + area.w + points(11), y + line / 2 + points(14) * cap_height / 200},
                number_text(value, step), {.size = points(14), .color = palette::ink});
  }
}

void Legend::draw_rows(Canvas& canvas, Point at) const {
  const double side = points(swatch_side), size = points(text_size);
  for (const LegendRow& row : rows_) {
    const bool heading = row.swatch == Swatch::Heading;
    if (heading && &row != &rows_.front()) at.y += points(heading_gap);
    const double baseline = at.y + std::round(side / 2 + size * cap_height / 200);
    if (heading) {
      canvas.text({at.x, baseline}, row.name, {.size = size, .color = palette::ink});
    } else {
      const double x = at.x + side + points(swatch_gap);
      draw_swatch(canvas, {at.x, at.y, side, side}, row);
      canvas.text({x, baseline}, row.name, {.size = size, .color = palette::ink});
      canvas.text({x + name_width_ + points(detail_gap), baseline}, row.detail,
                  {.size = size, .color = palette::muted});
    }
    at.y += points(row_step);
  }
}

void Legend::draw_swatch(Canvas& canvas, Rect box, const LegendRow& row) const {
  const bool scored = !picture_.score.empty();
  const Color blank = scored ? palette::masked_score : palette::masked;
  const double line = std::max(1.0, points(1)), column = 1;
  const auto ink_at = [&](double t) {
    if (!scored) return row.swatch == Swatch::TileFull ? palette::kept : palette::kept_in_mixed;
    return value_color(summary_, summary_.lo + (0.15 + 0.7 * t) * (summary_.hi - summary_.lo));
  };
  if (row.swatch == Swatch::Plain) return canvas.fill(box, row.color);
  canvas.fill(box, row.swatch == Swatch::TileMixed && !scored ? palette::masked_in_mixed : blank);
  if (row.swatch == Swatch::TileEmpty) return;
  // A mixed tile is shown as a small causal staircase, a full one as solid colour.
  constexpr int stairs = 4;
  for (double x = 0; x < box.w; x += column) {
    const double t = x / box.w;
    const double top = row.swatch == Swatch::TileFull ? 0 : std::floor(t * stairs) / stairs * box.h;
    canvas.fill({box.x + x, box.y + top, column, box.h - top}, ink_at(t));
  }
  if (row.swatch == Swatch::TileMixed) canvas.frame(box, 1.5 * line, palette::mixed_line);
}

}  // namespace fovea::cli

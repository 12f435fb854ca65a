#include "cli/draw/legend_column.h"

#include <algorithm>
#include <cmath>

#include "cli/draw/labels.h"

namespace fovea::cli {
namespace {

// In points.
constexpr double text_size = 14, tick_size = 13, swatch_side = 16, row_step = 25, heading_gap = 14;
constexpr double swatch_gap = 10, detail_gap = 12;
constexpr double bar_width = 18, bar_title = 26, bar_least = 120, bar_most = 420, bar_gap = 34;
constexpr double bar_tick = 5, bar_number = 10;
constexpr const char* bar_label = "modified score";

std::string tick_text(const std::vector<double>& ticks, std::size_t i) {
  return number_text(ticks[i], ticks.size() > 1 ? ticks[1] - ticks[0] : 0);
}

}  // namespace

LegendColumn::LegendColumn(const Picture& picture, const Summary& summary, double scale)
    : picture_(picture), summary_(summary), scale_(scale), rows_(legend_rows(picture, summary)) {
  const auto wide = [&](const std::string& words) { return text_width(words, points(text_size)); };
  double detail_width = 0;
  for (const LegendRow& row : rows_) {
    if (row.swatch == Swatch::Heading) {
      width_ = std::max(width_, wide(row.name));
    } else {
      name_width_ = std::max(name_width_, wide(row.name));
      detail_width = std::max(detail_width, wide(row.detail));
    }
  }
  width_ =
      std::max(width_, points(swatch_side + swatch_gap + detail_gap) + name_width_ + detail_width);
  height_ = rows_height();
  if (picture.score.empty() || !summary.has_values) return;
  ticks_ = value_ticks(summary.lo, summary.hi, value_tick_count);
  width_ = std::max(width_, wide(bar_label));
  for (std::size_t i = 0; i < ticks_.size(); ++i) {
    width_ = std::max(width_, points(bar_width + bar_number) +
                                  text_width(tick_text(ticks_, i), points(tick_size)));
  }
  height_ += points(bar_title + bar_least + (rows_.empty() ? 0 : bar_gap));
}

double LegendColumn::points(double length) const { return std::round(length * scale_); }

double LegendColumn::rows_height() const {
  if (rows_.empty()) return 0;
  double height = 0;
  for (const LegendRow& row : rows_) {
    height += points(row_step);
    if (row.swatch == Swatch::Heading && &row != &rows_.front()) height += points(heading_gap);
  }
  return height - points(row_step - swatch_side);
}

void LegendColumn::draw(Canvas& canvas, Rect area) const {
  double y = area.y;
  if (!ticks_.empty()) {
    const double below = rows_.empty() ? 0 : rows_height() + points(bar_gap);
    const double top = y + points(bar_title);
    const double tall =
        std::clamp(area.h - points(bar_title) - below, points(bar_least), points(bar_most));
    canvas.text({area.x, y + points(text_size * cap_height)}, bar_label,
                {.size = points(text_size)});
    draw_bar(canvas, {area.x, top, points(bar_width), tall});
    y = top + tall + points(bar_gap);
  }
  draw_rows(canvas, {area.x, y});
}

void LegendColumn::draw_bar(Canvas& canvas, Rect area) const {
  std::vector<Color> colors;
  const auto columns = static_cast<int>(area.w), rows = static_cast<int>(area.h);
  for (int i = 0; i < rows; ++i) {
    const double t = 1 - (i + 0.5) / rows;
    colors.insert(colors.end(), static_cast<std::size_t>(columns),
                  value_color(summary_, summary_.lo + t * (summary_.hi - summary_.lo)));
  }
  canvas.image({area.x, area.y}, columns, rows, colors);
  const double line = std::max(1.0, points(1));
  canvas.frame({area.x - line, area.y - line, area.w + 2 * line, area.h + 2 * line}, line,
               palette::muted);
  for (std::size_t i = 0; i < ticks_.size(); ++i) {
    const double t = (ticks_[i] - summary_.lo) / (summary_.hi - summary_.lo);
    const double y = std::round(area.y + (1 - t) * (area.h - 1));
    canvas.fill({area.x + area.w + line, y, points(bar_tick), line}, palette::muted);
    canvas.text(
        {area.x + area.w + points(bar_number), y + line / 2 + points(tick_size) * cap_height / 2},
        tick_text(ticks_, i), {.size = points(tick_size)});
  }
}

void LegendColumn::draw_rows(Canvas& canvas, Point at) const {
  const double side = points(swatch_side), size = points(text_size);
  for (const LegendRow& row : rows_) {
    const bool heading = row.swatch == Swatch::Heading;
    if (heading && &row != &rows_.front()) at.y += points(heading_gap);
    const double baseline = at.y + std::round(side / 2 + size * cap_height / 2);
    if (heading) {
      canvas.text({at.x, baseline}, row.name, {.size = size});
    } else {
      const double x = at.x + side + points(swatch_gap);
      draw_swatch(canvas, {at.x, at.y, side, side}, row);
      canvas.text({x, baseline}, row.name, {.size = size});
      canvas.text({x + name_width_ + points(detail_gap), baseline}, row.detail,
                  {.size = size, .color = palette::muted});
    }
    at.y += points(row_step);
  }
}

// A mixed tile is shown as a small causal staircase, a full one as solid colour.
void LegendColumn::draw_swatch(Canvas& canvas, Rect box, const LegendRow& row) const {
  const bool scored = !picture_.score.empty(), mixed = row.swatch == Swatch::TileMixed;
  if (row.swatch == Swatch::Plain) return canvas.fill(box, row.color);
  const Color blank = mixed ? palette::masked_in_mixed : palette::masked;
  canvas.fill(box, scored ? palette::masked_score : blank);
  if (row.swatch == Swatch::TileEmpty) return;
  constexpr double stairs = 4;
  for (double x = 0; x < box.w; ++x) {
    const double t = x / box.w,
                 value = summary_.lo + (0.15 + 0.7 * t) * (summary_.hi - summary_.lo);
    const double top = mixed ? std::round(std::floor(t * stairs) / stairs * box.h) : 0;
    const Color plain = mixed ? palette::kept_in_mixed : palette::kept;
    canvas.fill({box.x + x, box.y + top, 1, box.h - top},
                scored ? value_color(summary_, value) : plain);
  }
  if (mixed) canvas.frame(box, 1.5 * std::max(1.0, points(1)), palette::mixed_line);
}

}  // namespace fovea::cli

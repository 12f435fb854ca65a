#include "cli/draw/figure.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <stdexcept>
#include <vector>

#include "cli/draw/canvas.h"
#include "cli/draw/labels.h"

namespace fovea::cli {
namespace {

// In points.
constexpr double margin = 30, title_size = 19, title_least = 15, subtitle_size = 14;
constexpr double tick_size = 13, label_size = 15, tick_length = 5, column_gap = 34;
constexpr double least_title_width = 440;
constexpr std::size_t title_lines = 3;
constexpr double text_size = 14, swatch_side = 16, row_step = 25, heading_gap = 14;
constexpr double swatch_gap = 10, detail_gap = 12;
constexpr double bar_width = 18, bar_title = 26, bar_least = 120, bar_most = 420, bar_gap = 34;
constexpr double bar_tick = 5, bar_number = 10;
constexpr const char* bar_label = "modified score";

std::string tick_text(const std::vector<double>& ticks, std::size_t i) {
  return value_text(ticks[i], ticks.size() > 1 ? ticks[1] - ticks[0] : 0);
}

// The legend as a column beside the map: a colour bar, then rows of swatches and words. Measured
// and drawn at a scale in pixels per point.
class LegendColumn {
 public:
  // picture and summary must outlive this.
  LegendColumn(const Picture& picture, const Summary& summary, double scale);

  double width() const { return width_; }
  // The least height; a colour bar uses up any greater one.
  double height() const { return height_; }
  void draw(Canvas& canvas, Rect area) const;

 private:
  double points(double length) const;
  double rows_height() const;
  void draw_bar(Canvas& canvas, Rect area) const;
  void draw_rows(Canvas& canvas, Point at) const;
  void draw_swatch(Canvas& canvas, Rect box, const LegendRow& row) const;

  const Picture& picture_;
  const Summary& summary_;
  double scale_;
  std::vector<LegendRow> rows_;
  std::vector<double> ticks_;  // none: there is no bar
  double name_width_ = 0, width_ = 0, height_ = 0;
};

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

class Figure {
 public:
  Figure(const Picture& picture, double scale);
  Point origin() const { return {map_.x, map_.y}; }
  std::string draw(FileKind kind) const;

 private:
  double points(double length) const { return std::round(length * scale_); }
  double line() const { return std::max(1.0, points(1)); }
  void fit_title(double width);
  std::vector<int> ticks_across() const;
  std::vector<int> ticks_down() const;
  double tick_place(int tick, int positions, int cells, double length) const;
  void draw_map(Canvas& canvas) const;
  void draw_cell_grid(Canvas& canvas) const;
  Rect tile_box(std::size_t tile) const;
  void draw_tiles(Canvas& canvas) const;
  void draw_axes(Canvas& canvas) const;
  void draw_title(Canvas& canvas) const;

  const Picture& picture_;
  double scale_;
  Summary summary_;
  LegendColumn legend_;
  Rect map_, legend_area_;
  double width_ = 0, height_ = 0;
  double title_px_ = 0;
  std::vector<std::string> title_, subtitle_;
};

double widest(const std::vector<int>& ticks, double size) {
  double width = 0;
  for (const int tick : ticks) width = std::max(width, text_width(std::to_string(tick), size));
  return width;
}

Figure::Figure(const Picture& picture, double scale)
    : picture_(picture),
      scale_(scale),
      summary_(summarize(picture)),
      legend_(picture, summary_, scale) {
  const MapSize size = map_size(picture, scale);
  map_.w = size.width;
  map_.h = size.height;
  map_.x = points(margin + label_size + 14 + tick_length + 6) +
           std::ceil(widest(ticks_down(), points(tick_size)));
  legend_area_ = {map_.x + map_.w + points(column_gap), 0, legend_.width(),
                  std::max(legend_.height(), map_.h)};
  width_ =
      std::ceil(std::max(legend_area_.x + legend_area_.w, map_.x + points(least_title_width))) +
      points(margin);
  fit_title(width_ - points(margin) - map_.x);
  const double title_step = std::round(title_px_ * 1.35),
               subtitle_step = points(subtitle_size * 1.5);
  map_.y = points(margin) + static_cast<double>(title_.size()) * title_step +
           static_cast<double>(subtitle_.size()) * subtitle_step;
  if (!title_.empty() || !subtitle_.empty()) map_.y += points(8);
  legend_area_.y = map_.y;
  const double below_map = points(tick_length + 8 + tick_size + 10 + label_size);
  height_ = std::ceil(std::max(map_.y + map_.h + below_map, map_.y + legend_.height())) +
            points(margin - 4);
}

// One line at full size, else one smaller line, else several smaller ones.
void Figure::fit_title(double width) {
  const std::string clean = printable(picture_.title);
  title_px_ = points(title_size);
  while (title_px_ > points(title_least) && text_width(clean, title_px_) > width) --title_px_;
  title_ = wrap_text(clean, width, title_lines,
                     [&](std::string_view t) { return text_width(std::string(t), title_px_); });
  subtitle_ = wrap_text(printable(picture_.subtitle), width, 2, [&](std::string_view t) {
    return text_width(std::string(t), points(subtitle_size));
  });
}

std::vector<int> Figure::ticks_across() const {
  const int positions = positions_k(picture_);
  const double label = text_width(std::to_string(positions), points(tick_size)) + points(20);
  return position_ticks(positions, std::clamp(static_cast<int>(map_.w / label), 1, 8));
}

std::vector<int> Figure::ticks_down() const {
  return position_ticks(positions_q(picture_),
                        std::clamp(static_cast<int>(map_.h / points(40)), 1, 8));
}

// Large cells carry their number at their middle, small ones where they begin.
double Figure::tick_place(int tick, int positions, int cells, double length) const {
  const bool middle = cells == positions && length / cells >= points(8);
  if (middle && tick >= positions) return -1;
  return std::floor((tick + (middle ? 0.5 : 0)) * length / positions);
}

void Figure::draw_map(Canvas& canvas) const {
  const auto w = static_cast<int>(map_.w), h = static_cast<int>(map_.h);
  canvas.image(origin(), w, h, CellColors(picture_, summary_).resample(w, h));
}

void Figure::draw_cell_grid(Canvas& canvas) const {
  const double cell_w = map_.w / picture_.skv, cell_h = map_.h / picture_.sq;
  if (std::min(cell_w, cell_h) < points(9)) return;
  for (int k = 1; k < picture_.skv; ++k) {
    canvas.fill({map_.x + k * cell_w, map_.y, line(), map_.h}, palette::paper, 0.6);
  }
  for (int q = 1; q < picture_.sq; ++q) {
    canvas.fill({map_.x, map_.y + q * cell_h, map_.w, line()}, palette::paper, 0.6);
  }
}

Rect Figure::tile_box(std::size_t tile) const {
  const double step_x = map_.w * picture_.tile_k / positions_k(picture_);
  const double step_y = map_.h * picture_.tile_q / positions_q(picture_);
  const auto across = static_cast<std::size_t>((positions_k(picture_) - 1) / picture_.tile_k + 1);
  const auto row = static_cast<double>(tile / across), column = static_cast<double>(tile % across);
  const double x0 = std::round(column * step_x), y0 = std::round(row * step_y);
  const double x1 = std::min(map_.w, std::round((column + 1) * step_x));
  const double y1 = std::min(map_.h, std::round((row + 1) * step_y));
  return {map_.x + x0, map_.y + y0, x1 - x0, y1 - y0};
}

// Paper-coloured lines between tiles and an orange frame on the border of each mixed one: lines on
// borders cost the mask least. Tiles too small for frames show by their tint alone.
void Figure::draw_tiles(Canvas& canvas) const {
  if (picture_.tiles.empty()) return;
  const Rect first = tile_box(0);
  const double side = std::min(first.w, first.h);
  if (side < points(6)) return;
  for (std::size_t i = 0; i < picture_.tiles.size(); ++i) {
    const Rect box = tile_box(i);
    if (box.x > map_.x) canvas.fill({box.x, box.y, line(), box.h}, palette::paper, 0.8);
    if (box.y > map_.y) canvas.fill({box.x, box.y, box.w, line()}, palette::paper, 0.8);
  }
  const double thick = side < points(24) ? line() : 2 * line();
  // Frames lie over the line they replace, and at the ends of the map wholly outside, so that a
  // mask one cell wide at the edge is still seen.
  for (std::size_t i = 0; i < picture_.tiles.size(); ++i) {
    if (picture_.tiles[i] != TileClass::Mixed) continue;
    const Rect box = tile_box(i);
    const double left = box.x > map_.x ? thick - line() : thick;
    const double above = box.y > map_.y ? thick - line() : thick;
    const double right = box.x + box.w < map_.x + map_.w ? line() : thick;
    const double below = box.y + box.h < map_.y + map_.h ? line() : thick;
    canvas.frame({box.x - left, box.y - above, box.w + left + right, box.h + above + below}, thick,
                 palette::mixed_line);
  }
}

void Figure::draw_axes(Canvas& canvas) const {
  const double l = line();
  canvas.frame({map_.x - l, map_.y - l, map_.w + 2 * l, map_.h + 2 * l}, l, palette::muted);
  const double size = points(tick_size), middle = size * cap_height / 2;
  const double bottom = map_.y + map_.h, length = points(tick_length);
  for (const int tick : ticks_across()) {
    const double at = tick_place(tick, positions_k(picture_), picture_.skv, map_.w);
    if (at < 0) continue;
    canvas.fill({map_.x + at, bottom + l, l, length}, palette::muted);
    canvas.text({map_.x + at + l / 2, bottom + length + points(8) + 2 * middle},
                std::to_string(tick), {.size = size, .align = Align::Centre});
  }
  for (const int tick : ticks_down()) {
    const double at = tick_place(tick, positions_q(picture_), picture_.sq, map_.h);
    if (at < 0) continue;
    canvas.fill({map_.x - l - length, map_.y + at, length, l}, palette::muted);
    canvas.text({map_.x - length - points(6), map_.y + at + l / 2 + middle}, std::to_string(tick),
                {.size = size, .align = Align::Right});
  }
  const TextStyle label{.size = points(label_size), .align = Align::Centre};
  canvas.text({map_.x + map_.w / 2, bottom + points(tick_length + 8 + tick_size + 8 + label_size)},
              "key position k", label);
  TextStyle upward = label;
  upward.upward = true;
  canvas.text({points(margin) + label.size * cap_height, map_.y + map_.h / 2}, "query position q",
              upward);
}

void Figure::draw_title(Canvas& canvas) const {
  double y = points(margin) + std::round(title_px_ * cap_height) - points(2);
  for (const std::string& text : title_) {
    canvas.text({map_.x, y}, text, {.size = title_px_});
    y += std::round(title_px_ * 1.35);
  }
  for (const std::string& text : subtitle_) {
    canvas.text({map_.x, y}, text, {.size = points(subtitle_size), .color = palette::muted});
    y += points(subtitle_size * 1.5);
  }
}

std::string Figure::draw(FileKind kind) const {
  Canvas canvas(kind, width_, height_);
  draw_map(canvas);
  draw_cell_grid(canvas);
  draw_axes(canvas);
  draw_tiles(canvas);
  draw_title(canvas);
  legend_.draw(canvas, legend_area_);
  return canvas.finish();
}

}  // namespace

FileKind file_kind(const std::string& path) {
  const std::string ending = std::filesystem::path(path).extension().string();
  if (ending == ".png") return FileKind::Png;
  if (ending == ".svg") return FileKind::Svg;
  if (ending == ".pdf") return FileKind::Pdf;
  throw std::invalid_argument("cannot write " + path + ": its name must end in .png, .svg or .pdf");
}

std::string draw_figure(const Picture& picture, FileKind kind, double scale) {
  return Figure(picture, scale).draw(kind);
}

Point map_origin(const Picture& picture, double scale) { return Figure(picture, scale).origin(); }

}  // namespace fovea::cli

#include "cli/draw/figure.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <stdexcept>

#include "cli/draw/labels.h"
#include "cli/draw/legend_column.h"

namespace fovea::cli {
namespace {

// In points.
constexpr double margin = 30, title_size = 19, title_least = 15, subtitle_size = 14;
constexpr double tick_size = 13, label_size = 15, tick_length = 5, column_gap = 34;
constexpr double least_title_width = 440;
constexpr std::size_t title_lines = 3;

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

#include "canvas.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace fovea::cli {
namespace {

constexpr double stroke_per_em = 0.086;
// Thinner strokes turn into grey mist on a screen.
constexpr double thinnest_text = 1.15;

unsigned char mix_byte(unsigned char a, unsigned char b, double t) {
  return static_cast<unsigned char>(std::lround(a + (b - a) * t));
}

double squared_distance(Point p, const Segment& s) {
  const double dx = s.b.x - s.a.x, dy = s.b.y - s.a.y;
  const double length2 = dx * dx + dy * dy;
  double t = 0;
  if (length2 > 0) t = std::clamp(((p.x - s.a.x) * dx + (p.y - s.a.y) * dy) / length2, 0.0, 1.0);
  const double ex = p.x - s.a.x - t * dx, ey = p.y - s.a.y - t * dy;
  return ex * ex + ey * ey;
}

// How much of pixel i lies between lo and hi on one axis.
double overlap(int i, double lo, double hi) {
  return std::max(0.0, std::min(hi, i + 1.0) - std::max(lo, static_cast<double>(i)));
}

}  // namespace

Color mix(Color a, Color b, double t) {
  t = std::clamp(t, 0.0, 1.0);
  return {mix_byte(a.r, b.r, t), mix_byte(a.g, b.g, t), mix_byte(a.b, b.b, t)};
}

Canvas::Canvas(int width, int height, Color background) : width_(width), height_(height) {
  if (width < 1 || height < 1) {
    throw std::invalid_argument("canvas is " + std::to_string(width) + " x " +
                                std::to_string(height) + " pixels: both sides must be at least 1");
  }
  bytes_.resize(static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) set(x, y, background);
  }
}

Color Canvas::at(int x, int y) const {
  const std::size_t i = (static_cast<std::size_t>(y) * static_cast<std::size_t>(width_) +
                         static_cast<std::size_t>(x)) *
                        3;
  return {bytes_.at(i), bytes_.at(i + 1), bytes_.at(i + 2)};
}

void Canvas::set(int x, int y, Color color) {
  if (x < 0 || y < 0 || x >= width_ || y >= height_) return;
  const std::size_t i = (static_cast<std::size_t>(y) * static_cast<std::size_t>(width_) +
                         static_cast<std::size_t>(x)) *
                        3;
  bytes_[i] = color.r;
  bytes_[i + 1] = color.g;
  bytes_[i + 2] = color.b;
}

void Canvas::blend(int x, int y, Color color, double opacity) {
  if (opacity <= 0) return;
  set(x, y, opacity >= 1 ? color : mix(at(x, y), color, opacity));
}

void Canvas::fill(Rect rect, Color color, double opacity) {
  const int x0 = std::max(0, static_cast<int>(std::floor(rect.x)));
  const int y0 = std::max(0, static_cast<int>(std::floor(rect.y)));
  const int x1 = std::min(width_, static_cast<int>(std::ceil(rect.x + rect.w)));
  const int y1 = std::min(height_, static_cast<int>(std::ceil(rect.y + rect.h)));
  for (int y = y0; y < y1; ++y) {
    const double row = opacity * overlap(y, rect.y, rect.y + rect.h);
    for (int x = x0; x < x1; ++x) blend(x, y, color, row * overlap(x, rect.x, rect.x + rect.w));
  }
}

void Canvas::frame(Rect rect, double line, Color color, double opacity) {
  if (line * 2 >= std::min(rect.w, rect.h)) return fill(rect, color, opacity);
  fill({rect.x, rect.y, rect.w, line}, color, opacity);
  fill({rect.x, rect.y + rect.h - line, rect.w, line}, color, opacity);
  fill({rect.x, rect.y + line, line, rect.h - 2 * line}, color, opacity);
  fill({rect.x + rect.w - line, rect.y + line, line, rect.h - 2 * line}, color, opacity);
}

void Canvas::line(Point a, Point b, double width, Color color) {
  const Segment segment{a, b, 1};
  stroke({&segment, 1}, width, color);
}

void Canvas::stroke(std::span<const Segment> segments, double width, Color color) {
  if (segments.empty()) return;
  Point lo = segments.front().a, hi = lo;
  double thickest = width;
  for (const Segment& s : segments) {
    lo = {std::min({lo.x, s.a.x, s.b.x}), std::min({lo.y, s.a.y, s.b.y})};
    hi = {std::max({hi.x, s.a.x, s.b.x}), std::max({hi.y, s.a.y, s.b.y})};
    thickest = std::max(thickest, width * s.grow);
  }
  const double reach = thickest / 2 + 1;
  const int x0 = std::max(0, static_cast<int>(lo.x - reach));
  const int y0 = std::max(0, static_cast<int>(lo.y - reach));
  const int x1 = std::min(width_ - 1, static_cast<int>(hi.x + reach));
  const int y1 = std::min(height_ - 1, static_cast<int>(hi.y + reach));
  for (int y = y0; y <= y1; ++y) {
    for (int x = x0; x <= x1; ++x) {
      double cover = 0;
      for (const Segment& s : segments) {
        const double edge = width * s.grow / 2 + 0.5;
        const double d2 = squared_distance({x + 0.5, y + 0.5}, s);
        if (d2 < edge * edge) cover = std::max(cover, edge - std::sqrt(d2));
      }
      // A hair thinner than a pixel must not look like a full pixel.
      blend(x, y, color, std::min({cover, 1.0, width}));
    }
  }
}

void Canvas::text(Point anchor, std::string_view words, const TextStyle& style) {
  const double unit = style.size / 100;
  const double stroke_width = std::max(thinnest_text, stroke_per_em * style.size) * style.weight;
  double pen = 0;
  if (style.align == Align::Centre) pen = -text_width(words, style.size) / 2;
  if (style.align == Align::Right) pen = -text_width(words, style.size);
  std::vector<Segment> placed;
  while (!words.empty()) {
    const Glyph& shape = glyph(take_code_point(words));
    const auto place = [&](Point p) -> Point {
      const double along = pen + p.x * unit, up = p.y * unit;
      if (style.upward) return {anchor.x - up, anchor.y - along};
      return {anchor.x + along, anchor.y - up};
    };
    placed.clear();
    for (const Segment& s : shape.segments) placed.push_back({place(s.a), place(s.b), s.grow});
    stroke(placed, stroke_width, style.color);
    pen += shape.advance * unit;
  }
}

}  // namespace fovea::cli

// A small RGB picture with anti-aliased rectangles, strokes and text, in pixels from the top left.
// It knows nothing of masks or files: picture.cpp draws with it, png.cpp writes it.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "font.h"

namespace fovea::cli {

struct Color {
  unsigned char r = 0, g = 0, b = 0;
  bool operator==(const Color&) const = default;
};

// a at t = 0, b at t = 1.
Color mix(Color a, Color b, double t);

struct Rect {
  double x = 0, y = 0, w = 0, h = 0;
};

enum class Align { Left, Centre, Right };

struct TextStyle {
  double size = 14;  // pixels per em; capitals are 0.71 of it
  Color color;
  Align align = Align::Left;
  bool upward = false;  // reads from bottom to top
  double weight = 1;    // factor on the stroke width
};

class Canvas {
 public:
  Canvas(int width, int height, Color background);

  int width() const { return width_; }
  int height() const { return height_; }
  Color at(int x, int y) const;
  void set(int x, int y, Color color);

  // Edges between pixels are covered by their share of the area.
  void fill(Rect rect, Color color, double opacity = 1);
  // A frame of the given line width that lies inside rect.
  void frame(Rect rect, double line, Color color, double opacity = 1);
  void line(Point a, Point b, double width, Color color);
  // All segments together are one shape, so that joints are not painted twice.
  void stroke(std::span<const Segment> segments, double width, Color color);
  // anchor is the start, middle or end of the baseline, as aligned.
  void text(Point anchor, std::string_view words, const TextStyle& style);

  // [height, width, 3]
  std::span<const unsigned char> bytes() const { return bytes_; }

 private:
  void blend(int x, int y, Color color, double opacity);

  int width_, height_;
  std::vector<unsigned char> bytes_;
};

}  // namespace fovea::cli

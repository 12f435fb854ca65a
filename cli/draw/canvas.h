// A drawing of rectangles, images and text through Cairo, in pixels from the top left, and the
// bytes of the file that it becomes. It knows nothing of masks: figure.cpp draws with it.
#pragma once

#include <cairo.h>

#include <memory>
#include <span>
#include <string>

#include "cli/draw/figure.h"
#include "cli/draw/picture.h"

namespace fovea::cli {

// An object of Cairo's that is given back at the end.
template <auto release>
struct Release {
  void operator()(auto* object) const { release(object); }
};
template <class Object, auto release>
using Handle = std::unique_ptr<Object, Release<release>>;

struct Rect {
  double x = 0, y = 0, w = 0, h = 0;
};

enum class Align { Left, Centre, Right };

struct TextStyle {
  double size = 14;  // pixels per em
  Color color = palette::ink;
  Align align = Align::Left;
  bool upward = false;  // reads from bottom to top
};

// The height of capitals as a share of the text size.
constexpr double cap_height = 0.73;

double text_width(const std::string& words, double size);

class Canvas {
 public:
  Canvas(FileKind kind, double width, double height);
  Canvas(const Canvas&) = delete;  // Cairo keeps the address of bytes_
  Canvas& operator=(const Canvas&) = delete;

  void fill(Rect rect, Color color, double opacity = 1);
  // A frame of the given line width that lies inside rect.
  void frame(Rect rect, double line, Color color);
  // [height, width] colours, a pixel each.
  void image(Point at, int width, int height, std::span<const Color> colors);
  // anchor is the start, middle or end of the baseline, as aligned.
  void text(Point anchor, const std::string& words, const TextStyle& style);

  // The whole file. Nothing can be drawn afterwards.
  std::string finish();

 private:
  FileKind kind_;
  std::string bytes_;
  Handle<cairo_surface_t, cairo_surface_destroy> surface_;
  Handle<cairo_t, cairo_destroy> cairo_;
};

}  // namespace fovea::cli

// Fovea's own stroke font: every printable ASCII character as centre lines on a small grid.
// It holds shapes and widths only and draws nothing; Canvas::text strokes them with round caps.
// Unknown characters come out as an empty box, so that any UTF-8 title can be shown.
#pragma once

#include <string_view>
#include <vector>

namespace fovea::cli {

struct Point {
  double x = 0, y = 0;
};

// A straight piece of a stroke; `grow` thickens the dots of i, j, the full stop and so on.
struct Segment {
  Point a, b;
  double grow = 1;
};

// Lengths are in hundredths of the text size; y points up from the baseline.
struct Glyph {
  double advance = 0;
  std::vector<Segment> segments;
};

constexpr double cap_height = 71;
constexpr double descent = 21;

const Glyph& glyph(char32_t code);

// Reads one UTF-8 character from the front of text and removes it; a bad byte gives U+FFFD.
char32_t take_code_point(std::string_view& text);

// The width of a line of text in pixels at a text size in pixels.
double text_width(std::string_view text, double size);

}  // namespace fovea::cli

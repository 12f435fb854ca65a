#include "font.h"

#include <map>
#include <sstream>

#include "glyphs.h"

namespace fovea::cli {
namespace {

// Rounder than an ellipse (0.552), so that bowls have the slightly square look of a grotesque.
constexpr double turn = 0.60;
constexpr double dot_grow = 1.3;
constexpr int curve_pieces = 10;
// Letters set at 11 to 16 pixels need a little more air than the shapes alone give.
constexpr double tracking = 3;

// Turns one path text into straight segments; the pen keeps the place between commands.
class Pen {
 public:
  explicit Pen(const GlyphShape& shape) : left_(shape.left + tracking / 2), path_(shape.path) {}

  std::vector<Segment> trace() {
    for (char command; path_ >> command;) {
      switch (command) {
        case 'M': at_ = read(); break;
        case 'L': line_to(read(), 1); break;
        case 'D':
          at_ = read();
          line_to(at_, dot_grow);
          break;
        case 'C': {
          const Point c = read(), d = read();
          curve_to(c, d, read());
          break;
        }
        case 'V': {
          const Point p = read();
          curve_to({at_.x, at_.y + turn * (p.y - at_.y)}, {p.x - turn * (p.x - at_.x), p.y}, p);
          break;
        }
        case 'H': {
          const Point p = read();
          curve_to({at_.x + turn * (p.x - at_.x), at_.y}, {p.x, p.y - turn * (p.y - at_.y)}, p);
          break;
        }
      }
    }
    return std::move(segments_);
  }

 private:
  Point read() {
    Point p;
    path_ >> p.x >> p.y;
    p.x += left_;
    return p;
  }

  void line_to(Point p, double grow) {
    segments_.push_back({at_, p, grow});
    at_ = p;
  }

  void curve_to(Point c, Point d, Point end) {
    const Point start = at_;
    for (int i = 1; i <= curve_pieces; ++i) {
      const double t = static_cast<double>(i) / curve_pieces, u = 1 - t;
      const double w[4] = {u * u * u, 3 * u * u * t, 3 * u * t * t, t * t * t};
      line_to({w[0] * start.x + w[1] * c.x + w[2] * d.x + w[3] * end.x,
               w[0] * start.y + w[1] * c.y + w[2] * d.y + w[3] * end.y},
              1);
    }
  }

  double left_;
  std::istringstream path_;
  Point at_;
  std::vector<Segment> segments_;
};

std::map<char32_t, Glyph> trace_all() {
  std::map<char32_t, Glyph> glyphs;
  for (const GlyphShape& shape : glyph_shapes()) {
    const double advance = shape.left + shape.width + shape.right + tracking;
    glyphs[shape.code] = {advance, Pen(shape).trace()};
  }
  return glyphs;
}

}  // namespace

const Glyph& glyph(char32_t code) {
  static const std::map<char32_t, Glyph> glyphs = trace_all();
  const auto found = glyphs.find(code);
  return found != glyphs.end() ? found->second : glyphs.at(U'\ufffd');
}

char32_t take_code_point(std::string_view& text) {
  const auto lead = static_cast<unsigned char>(text.front());
  text.remove_prefix(1);
  if (lead < 0x80) return lead;
  const int more = lead >= 0xf0 && lead < 0xf8 ? 3 : lead >= 0xe0 ? 2 : lead >= 0xc2 ? 1 : 0;
  if (more == 0 || lead >= 0xf8 || text.size() < static_cast<std::size_t>(more)) return U'\ufffd';
  char32_t code = lead & (0x3f >> more);
  for (int i = 0; i < more; ++i) {
    const auto byte = static_cast<unsigned char>(text[static_cast<std::size_t>(i)]);
    if ((byte & 0xc0) != 0x80) return U'\ufffd';
    code = code << 6 | (byte & 0x3f);
  }
  text.remove_prefix(static_cast<std::size_t>(more));
  return code;
}

double text_width(std::string_view text, double size) {
  double width = 0;
  while (!text.empty()) width += glyph(take_code_point(text)).advance;
  return width * size / 100;
}

}  // namespace fovea::cli

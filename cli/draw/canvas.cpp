#include "cli/draw/canvas.h"

#include <cairo-pdf.h>
#include <cairo-svg.h>

#include <cmath>
#include <cstdint>
#include <numbers>
#include <stdexcept>

#ifdef __SANITIZE_ADDRESS__
// fontconfig keeps its configuration until the process ends and refers to parts of it by offsets,
// which the leak sanitizer cannot follow.
extern "C" [[gnu::visibility("default")]] const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libfontconfig"; }
#endif

namespace fovea::cli {
namespace {

void check(cairo_status_t status) {
  if (status == CAIRO_STATUS_SUCCESS) return;
  throw std::runtime_error(std::string("Cairo cannot draw the picture: ") +
                           cairo_status_to_string(status));
}

cairo_status_t append(void* bytes, const unsigned char* data, unsigned size) {
  static_cast<std::string*>(bytes)->append(reinterpret_cast<const char*>(data), size);
  return CAIRO_STATUS_SUCCESS;
}

cairo_surface_t* make_surface(FileKind kind, double width, double height, std::string& bytes) {
  switch (kind) {
    case FileKind::Png:
      return cairo_image_surface_create(CAIRO_FORMAT_RGB24, static_cast<int>(width),
                                        static_cast<int>(height));
    case FileKind::Svg: return cairo_svg_surface_create_for_stream(append, &bytes, width, height);
    case FileKind::Pdf: return cairo_pdf_surface_create_for_stream(append, &bytes, width, height);
  }
  throw std::logic_error("a kind of file that does not exist");
}

// Letters keep their shapes and distances at every scale and in every kind of file.
void set_font(cairo_t* cairo, double size) {
  const Handle<cairo_font_options_t, cairo_font_options_destroy> options(
      cairo_font_options_create());
  cairo_font_options_set_hint_style(options.get(), CAIRO_HINT_STYLE_NONE);
  cairo_font_options_set_hint_metrics(options.get(), CAIRO_HINT_METRICS_OFF);
  cairo_font_options_set_antialias(options.get(), CAIRO_ANTIALIAS_GRAY);
  cairo_set_font_options(cairo, options.get());
  cairo_select_font_face(cairo, "DejaVu Sans", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_NORMAL);
  cairo_set_font_size(cairo, size);
}

double width_of(cairo_t* cairo, const std::string& words) {
  cairo_text_extents_t extents;
  cairo_text_extents(cairo, words.c_str(), &extents);
  return extents.x_advance;
}

// For measuring before there is a page.
class Scratch {
 public:
  cairo_t* get() const { return cairo_.get(); }

 private:
  Handle<cairo_surface_t, cairo_surface_destroy> page_{
      cairo_image_surface_create(CAIRO_FORMAT_A8, 1, 1)};
  Handle<cairo_t, cairo_destroy> cairo_{cairo_create(page_.get())};
};

void set_color(cairo_t* cairo, Color c, double opacity = 1) {
  cairo_set_source_rgba(cairo, c.r / 255.0, c.g / 255.0, c.b / 255.0, opacity);
}

}  // namespace

double text_width(const std::string& words, double size) {
  const Scratch cairo;
  set_font(cairo.get(), size);
  return width_of(cairo.get(), words);
}

// Cairo's own letters, which it takes if it finds no font, are a "user font".
bool has_font() {
  const Scratch cairo;
  set_font(cairo.get(), 14);
  return cairo_scaled_font_get_type(cairo_get_scaled_font(cairo.get())) != CAIRO_FONT_TYPE_USER;
}

Canvas::Canvas(FileKind kind, double width, double height)
    : kind_(kind),
      surface_(make_surface(kind, width, height, bytes_)),
      cairo_(cairo_create(surface_.get())) {
  check(cairo_status(cairo_.get()));
  fill({0, 0, width, height}, palette::paper);
}

void Canvas::fill(Rect rect, Color color, double opacity) {
  set_color(cairo_.get(), color, opacity);
  cairo_rectangle(cairo_.get(), rect.x, rect.y, rect.w, rect.h);
  cairo_fill(cairo_.get());
}

void Canvas::frame(Rect rect, double line, Color color) {
  set_color(cairo_.get(), color);
  cairo_set_line_width(cairo_.get(), line);
  cairo_rectangle(cairo_.get(), rect.x + line / 2, rect.y + line / 2, rect.w - line, rect.h - line);
  cairo_stroke(cairo_.get());
}

void Canvas::image(Point at, int width, int height, std::span<const Color> colors) {
  const Handle<cairo_surface_t, cairo_surface_destroy> image(
      cairo_image_surface_create(CAIRO_FORMAT_RGB24, width, height));
  check(cairo_surface_status(image.get()));
  cairo_surface_flush(image.get());
  unsigned char* const rows = cairo_image_surface_get_data(image.get());
  const int stride = cairo_image_surface_get_stride(image.get());
  auto color = colors.begin();
  for (int y = 0; y < height; ++y) {
    auto* const row = reinterpret_cast<std::uint32_t*>(rows + std::ptrdiff_t{y} * stride);
    for (int x = 0; x < width; ++x, ++color) {
      row[x] = std::uint32_t{color->r} << 16 | std::uint32_t{color->g} << 8 | color->b;
    }
  }
  cairo_surface_mark_dirty(image.get());
  cairo_set_source_surface(cairo_.get(), image.get(), at.x, at.y);
  cairo_pattern_set_filter(cairo_get_source(cairo_.get()), CAIRO_FILTER_NEAREST);
  // Not a filled rectangle: that would be a pattern in SVG, which not all programs can show.
  cairo_paint(cairo_.get());
}

void Canvas::text(Point anchor, const std::string& words, const TextStyle& style) {
  cairo_save(cairo_.get());
  cairo_translate(cairo_.get(), anchor.x, anchor.y);
  if (style.upward) cairo_rotate(cairo_.get(), -std::numbers::pi / 2);
  set_color(cairo_.get(), style.color);
  set_font(cairo_.get(), style.size);
  const double shares[] = {0, 0.5, 1};  // by Align
  cairo_move_to(cairo_.get(),
                -shares[static_cast<int>(style.align)] * width_of(cairo_.get(), words), 0);
  cairo_show_text(cairo_.get(), words.c_str());
  cairo_restore(cairo_.get());
}

std::string Canvas::finish() {
  check(cairo_status(cairo_.get()));
  if (kind_ == FileKind::Png) {
    check(cairo_surface_write_to_png_stream(surface_.get(), append, &bytes_));
  }
  cairo_surface_finish(surface_.get());
  check(cairo_surface_status(surface_.get()));
  return std::move(bytes_);
}

}  // namespace fovea::cli

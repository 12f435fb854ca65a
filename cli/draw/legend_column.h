// The legend as a column beside the map: colour bar, then rows of swatches and words.
#pragma once

#include <vector>

#include "cli/draw/canvas.h"
#include "cli/draw/cells.h"

namespace fovea::cli {

// Measured and drawn at a scale in pixels per point.
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

}  // namespace fovea::cli

// The column beside the map: colour bar, kept and masked, tile classes with counts.
// Rows are made for the figure and the terminal alike; the drawing here is the figure's.
#pragma once

#include <string>
#include <vector>

#include "canvas.h"
#include "cells.h"

namespace fovea::cli {

enum class Swatch { Heading, Plain, TileEmpty, TileFull, TileMixed };

struct LegendRow {
  Swatch swatch;
  Color color;
  std::string name;    // "full"
  std::string detail;  // "28 (43.8 %)"
};

std::vector<LegendRow> legend_rows(const Picture& picture, const Summary& summary);

// What is measured and drawn, at a scale in pixels per point.
class Legend {
 public:
  // picture and summary must outlive this.
  Legend(const Picture& picture, const Summary& summary, double scale);

  double width() const { return width_; }
  // The least height; with a colour bar any greater one is used up by the bar.
  double height() const { return height_; }
  void draw(Canvas& canvas, Rect area) const;

 private:
  double points(double length) const;
  double rows_height() const;
  void draw_bar(Canvas& canvas, Rect area) const;
  void draw_rows(Canvas& canvas, Point at) const;
  void draw_swatch(Canvas& canvas, Rect box, const LegendRow& row) const;
  std::vector<double> bar_ticks() const;

  const Picture& picture_;
  const Summary& summary_;
  double scale_;
  std::vector<LegendRow> rows_;
  double name_width_ = 0, width_ = 0, height_ = 0;
  bool has_bar_ = false;
};

}  // namespace fovea::cli

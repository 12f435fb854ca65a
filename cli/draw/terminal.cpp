#include "cli/draw/terminal.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "cli/draw/legend.h"
#include "cli/draw/terminal_cells.h"
#include "cli/draw/ticks.h"
#include "cli/draw/wrap.h"

namespace fovea::cli {
namespace {

constexpr int least_columns = 24, least_rows = 12, least_map_lines = 4;

int character_count(std::string_view text) {
  int count = 0;
  for (; !text.empty(); ++count) take_code_point(text);
  return count;
}

std::string repeat(const char* text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

std::string left_padded(const std::string& text, int width) {
  return repeat(" ", width - character_count(text)) + text;
}

std::vector<std::string> fit_words(const std::string& text, int columns, std::size_t lines) {
  return wrap_text(printable(text), columns, lines,
                   [](std::string_view t) { return character_count(t); });
}

// Words with colour: what is seen, and how many columns that takes.
struct Piece {
  std::string text;
  int width = 0;
};

class TextFigure {
 public:
  TextFigure(const Picture& picture, int columns, int rows, bool color)
      : picture_(picture), summary_(summarize(picture)), columns_(columns), color_(color) {
    head_ = fit_words(picture.title, columns, 2);
    for (const std::string& line : fit_words(picture.subtitle, columns, 1)) head_.push_back(line);
    legend_ = legend_lines();
    gutter_ = static_cast<int>(std::to_string(positions_q(picture)).size());
    // Words give way to the map when there is little room: the legend last.
    const auto around = [&] { return static_cast<int>(head_.size() + legend_.size()) + 4; };
    while (around() > rows - least_map_lines && head_.size() > 1) head_.pop_back();
    while (around() > rows - least_map_lines && !legend_.empty()) legend_.pop_back();
    // The gutter, the axis, and room for half of the last label below.
    size_ = fit_blocks(picture, columns - gutter_ - 2 - 3, rows - around());
  }

  std::string draw() const;

 private:
  Piece swatch(const LegendRow& row) const;
  std::vector<std::string> legend_lines() const;
  std::string bar_line() const;
  std::string map_lines() const;
  std::string axis_lines() const;

  const Picture& picture_;
  Summary summary_;
  int columns_, gutter_ = 0;
  bool color_;
  std::vector<std::string> head_, legend_;
  BlockMap size_;
};

Piece TextFigure::swatch(const LegendRow& row) const {
  const bool scored = !picture_.score.empty();
  std::string mark;
  Color color = row.color;
  switch (row.swatch) {
    case Swatch::Heading: return {row.name + ":", character_count(row.name) + 1};
    case Swatch::Plain: mark = row.name == "masked" && !color_ ? "□" : "■"; break;
    case Swatch::TileEmpty: mark = "□"; break;
    case Swatch::TileFull: mark = "■"; break;
    case Swatch::TileMixed: mark = "◧"; break;
  }
  if (row.color == palette::not_finite && !color_) mark = "×";
  if (scored && row.swatch == Swatch::TileFull) color = value_color(summary_, summary_.hi);
  const std::string words = " " + row.name + " " + row.detail;
  if (color_) mark = ansi_text(color) + mark + ansi_reset;
  return {mark + words, character_count(words) + 1};
}

std::string TextFigure::bar_line() const {
  const std::string lo = number_text(summary_.lo, 0), hi = number_text(summary_.hi, 0);
  const int room = columns_ - character_count(lo) - character_count(hi) - 2;
  const int cells = std::clamp(room, 1, 32);
  std::string bar;
  for (int i = 0; i < cells; ++i) {
    const double t = (i + 0.5) / cells;
    const double value = summary_.lo + t * (summary_.hi - summary_.lo);
    bar += color_ ? ansi_text(value_color(summary_, value)) + "█" : std::string(shade(t));
  }
  if (color_) bar += ansi_reset;
  const std::string name = room - cells >= 16 ? "  modified score" : "";
  return lo + " " + bar + " " + hi + name;
}

// Pieces flow into lines; a heading starts a new one.
std::vector<std::string> TextFigure::legend_lines() const {
  std::vector<std::string> lines;
  if (!picture_.score.empty() && summary_.has_values) lines.push_back(bar_line());
  int used = columns_ + 1;
  for (const LegendRow& row : legend_rows(picture_, summary_)) {
    Piece piece = swatch(row);
    if (piece.width > columns_) {
      piece = {fit_words(row.name + " " + row.detail, columns_, 1).front(), columns_};
    }
    const int gap = row.swatch == Swatch::TileEmpty ? 1 : 3;
    if (row.swatch == Swatch::Heading || used + gap + piece.width > columns_) {
      lines.push_back(piece.text);
      used = piece.width;
    } else {
      lines.back() += repeat(" ", gap) + piece.text;
      used += gap + piece.width;
    }
  }
  return lines;
}

std::string TextFigure::map_lines() const {
  const std::vector<std::string> cells =
      color_ ? color_lines(picture_, summary_, size_) : plain_lines(picture_, summary_, size_);
  const int positions = positions_q(picture_);
  std::vector<std::string> labels(cells.size());
  for (const int tick : position_ticks(positions, std::clamp(size_.lines() / 2, 1, 8))) {
    const double at = static_cast<double>(tick) * size_.lines() / positions;
    if (tick < positions) labels[static_cast<std::size_t>(at)] = std::to_string(tick);
  }
  std::string text = left_padded("q", gutter_) + " ┌" + repeat("─", size_.columns) + "┐\n";
  for (std::size_t i = 0; i < cells.size(); ++i) {
    text += left_padded(labels[i], gutter_) + (labels[i].empty() ? " │" : " ┤") + cells[i] + "│\n";
  }
  return text;
}

std::string TextFigure::axis_lines() const {
  const int positions = positions_k(picture_);
  const auto label = static_cast<int>(std::to_string(positions).size());
  std::string rule, numbers;
  int ruled = 0, written = 0;
  for (const int tick : position_ticks(positions, std::max(1, size_.columns / (label + 3)))) {
    const std::string number = std::to_string(tick);
    const auto at = static_cast<int>(static_cast<double>(tick) * size_.columns / positions);
    const int end = at + static_cast<int>(number.size());
    // One column of the margin is for a label that sticks out, two more are for the k.
    if (tick >= positions || (tick > 0 && at <= written) || end > size_.columns + 1) continue;
    rule += repeat("─", at - ruled) + "┴";
    ruled = at + 1;
    numbers += repeat(" ", at - written) + number;
    written = end;
  }
  rule += repeat("─", size_.columns - ruled);
  const std::string key =
      written + 2 <= size_.columns ? repeat(" ", size_.columns - 1 - written) + "k" : " k";
  return repeat(" ", gutter_) + " └" + rule + "┘\n" + repeat(" ", gutter_ + 2) + numbers + key +
         "\n";
}

std::string TextFigure::draw() const {
  std::string text;
  for (const std::string& line : head_) text += line + "\n";
  text += map_lines() + axis_lines();
  for (const std::string& line : legend_) text += line + "\n";
  return text;
}

}  // namespace

std::string draw_text(const Picture& picture, int columns, int rows, bool color) {
  if (columns < least_columns || rows < least_rows) {
    throw std::invalid_argument("the terminal has " + std::to_string(columns) + " columns and " +
                                std::to_string(rows) + " rows, but a picture needs at least " +
                                std::to_string(least_columns) + " x " + std::to_string(least_rows));
  }
  return TextFigure(picture, columns, rows, color).draw();
}

}  // namespace fovea::cli

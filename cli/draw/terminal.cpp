#include "cli/draw/terminal.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "cli/draw/labels.h"
#include "cli/draw/picture.h"

namespace fovea::cli {
namespace {

// ---- the map: a Picture as lines of block characters ----

constexpr const char* ansi_reset = "\033[0m";

// A terminal character is about twice as high as wide, so its two halves are square pixels.
struct BlockMap {
  int columns = 0, pixels = 0;  // pixels down: two in a line, the last line may hold one
  int lines() const { return (pixels + 1) / 2; }
};

// A lone cell need not fill the screen.
constexpr double most_pixels_per_cell = 8;

// Indexed by bits: 1 top left, 2 top right, 4 bottom left, 8 bottom right.
constexpr const char* quadrants[16] = {" ", "▘", "▝", "▀", "▖", "▌", "▞", "▛",
                                       "▗", "▚", "▐", "▜", "▄", "▙", "▟", "█"};

std::string ansi(int layer, Color c) {
  return "\033[" + std::to_string(layer) + ";2;" + std::to_string(c.r) + ";" + std::to_string(c.g) +
         ";" + std::to_string(c.b) + "m";
}

// The cells under pixel i of `pixels`; never none.
struct Range {
  int first, last;
};

Range cells_under(int i, int pixels, int cells) {
  const auto lo = static_cast<int>(std::int64_t{i} * cells / pixels);
  const auto hi = static_cast<int>((std::int64_t{i} + 1) * cells / pixels);
  return {lo, std::max(lo + 1, hi)};
}

// What a rectangle of cells holds, for drawing without colours.
struct Tally {
  int cells = 0, kept = 0, values = 0;
  double sum = 0;
};

Tally tally(const Picture& p, Range rows, Range columns) {
  Tally t;
  for (int q = rows.first; q < rows.last; ++q) {
    for (int k = columns.first; k < columns.last; ++k) {
      const std::size_t i = static_cast<std::size_t>(q) * static_cast<std::size_t>(p.skv) +
                            static_cast<std::size_t>(k);
      ++t.cells;
      if (!p.keep.empty() && p.keep[i] == 0) continue;
      ++t.kept;
      if (p.score.empty() || !std::isfinite(p.score[i])) continue;
      ++t.values;
      t.sum += p.score[i];
    }
  }
  return t;
}

int side_pixels(int cells, double scale) {
  return std::max(1, static_cast<int>(std::lround(cells * scale)));
}

std::string mask_character(const Picture& p, BlockMap size, int line, int column) {
  unsigned bits = 0;
  for (int part = 0; part < 4; ++part) {
    const int down = 2 * line + part / 2, across = 2 * column + part % 2;
    if (down >= size.pixels) continue;
    const Tally t = tally(p, cells_under(down, size.pixels, p.sq),
                          cells_under(across, 2 * size.columns, p.skv));
    if (2 * t.kept >= t.cells && t.kept > 0) bits |= 1u << part;
  }
  return quadrants[bits];
}

// The character for a value at t in [0, 1] without colours.
const char* shade(double t) {
  constexpr const char* shades[] = {"░", "▒", "▓", "█"};
  return shades[std::clamp(static_cast<int>(t * 4), 0, 3)];
}

std::string score_character(const Summary& s, const Tally& t) {
  if (t.kept * 2 < t.cells) return " ";
  if (t.values == 0) return "×";
  return shade((t.sum / t.values - s.lo) / (s.hi - s.lo));
}

std::string ansi_text(Color color) { return ansi(38, color); }
std::string ansi_behind(Color color) { return ansi(48, color); }

// The largest map of square cells that fits, with whole pixels per cell if those fit.
BlockMap fit_blocks(const Picture& p, int columns, int lines) {
  double scale = std::min(static_cast<double>(columns) / p.skv, 2.0 * lines / p.sq);
  if (scale > 1) scale = std::min(std::floor(scale), most_pixels_per_cell);
  int w = side_pixels(p.skv, scale), h = side_pixels(p.sq, scale);
  // As in the figure, a thin strip is stretched until it can be read.
  const int least = std::max(w, h) / 4;
  w = std::clamp(std::max(w, least), 1, columns);
  h = std::clamp(std::max(h, least), 1, 2 * lines);
  return {w, h};
}

// One string per line, without line ends.
std::vector<std::string> color_lines(const Picture& picture, const Summary& summary,
                                     BlockMap size) {
  const std::vector<Color> pixels =
      CellColors(picture, summary).resample(size.columns, size.pixels);
  const auto width = static_cast<std::size_t>(size.columns);
  std::vector<std::string> lines;
  for (std::size_t y = 0; y < static_cast<std::size_t>(size.lines()); ++y) {
    std::string line;
    for (std::size_t x = 0; x < width; ++x) {
      const std::size_t upper = 2 * y * width + x, lower = upper + width;
      // Repeating unchanged colours would make the text several times longer.
      if (x == 0 || pixels[upper] != pixels[upper - 1]) line += ansi_text(pixels[upper]);
      if (lower < pixels.size() && (x == 0 || pixels[lower] != pixels[lower - 1])) {
        line += ansi_behind(pixels[lower]);
      }
      line += "▀";
    }
    lines.push_back(line + ansi_reset);
  }
  return lines;
}

std::vector<std::string> plain_lines(const Picture& p, const Summary& s, BlockMap size) {
  std::vector<std::string> lines;
  for (int y = 0; y < size.lines(); ++y) {
    std::string line;
    for (int x = 0; x < size.columns; ++x) {
      line += p.score.empty() ? mask_character(p, size, y, x)
                              : score_character(s, tally(p, cells_under(y, size.lines(), p.sq),
                                                         cells_under(x, size.columns, p.skv)));
    }
    lines.push_back(line);
  }
  return lines;
}

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
  const std::string lo = value_text(summary_.lo, 0), hi = value_text(summary_.hi, 0);
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

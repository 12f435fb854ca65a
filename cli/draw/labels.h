// The text around a picture, for the figure and the terminal alike: ticks along a sequence and
// along a colour bar, and titles broken into lines.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace fovea::cli {

// Positions from 0 to `positions` in steps of a power of two when the length is made of them (that
// is how tiles lie), otherwise of 1, 2 or 5 times a power of ten; about `wanted` of them at most.
std::vector<int> position_ticks(int positions, int wanted);

// How many ticks a colour bar gets at most, about.
constexpr int value_tick_count = 6;

// The round distance of ticks over a range greater than 0.
double value_step(double range, int wanted);
// Round values within [lo, hi], about `wanted` of them at most and at least one.
std::vector<double> value_ticks(double lo, double hi, int wanted);

// A short text, with digits enough to tell values `step` apart.
std::string value_text(double value, double step);

// How wide a text is: pixels in the figure, columns in the terminal.
using Measure = std::function<double(std::string_view)>;

// Breaks a title, usually a formula, into at most max_lines lines and elides what is left over. A
// line is wider than `width` only if a single character is.
std::vector<std::string> wrap_text(std::string_view text, double width, std::size_t max_lines,
                                   const Measure& measure);

// Takes one UTF-8 character from the front of text; a bad byte gives U+FFFD.
char32_t take_code_point(std::string_view& text);

// Control characters become spaces and bad UTF-8 a replacement mark, so that a title can neither
// steer a terminal nor break a line.
std::string printable(std::string_view text);

}  // namespace fovea::cli

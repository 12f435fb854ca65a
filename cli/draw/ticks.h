// Round numbers for axes: tick positions along a sequence and along a colour bar, and their texts.
// Called by the figure and by the terminal drawing.
#pragma once

#include <string>
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
std::string number_text(double value, double step);

}  // namespace fovea::cli

#include "cli/draw/ticks.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>

namespace fovea::cli {
namespace {

// The smallest of 1, 2, 5, 10, ... times a power of ten that is not below least.
double round_up(double least) {
  const double power = std::pow(10, std::floor(std::log10(least)));
  // A hair of slack, because 0.3 / 3 must give 0.1 and not 0.2.
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

}  // namespace

std::vector<int> position_ticks(int positions, int wanted) {
  wanted = std::max(wanted, 1);
  std::int64_t step = 1;
  while (step * wanted < positions) step *= 2;
  // Lengths of at most a handful, and lengths that powers of two do not divide, read better in
  // tens.
  if (positions % step != 0 || positions < 32) {
    step =
        std::max<std::int64_t>(1, std::llround(round_up(static_cast<double>(positions) / wanted)));
  }
  std::vector<int> ticks;
  for (std::int64_t p = 0; p <= positions; p += step) ticks.push_back(static_cast<int>(p));
  return ticks;
}

double value_step(double range, int wanted) { return round_up(range / std::max(wanted, 1)); }

std::vector<double> value_ticks(double lo, double hi, int wanted) {
  const double step = value_step(hi - lo, wanted);
  std::vector<double> ticks;
  const double slack = step * 1e-6;
  for (double i = std::ceil((lo - slack) / step); i * step <= hi + slack; ++i) {
    ticks.push_back(i == 0 ? 0.0 : i * step);  // no "-0"
    if (ticks.size() > 64) break;              // a step lost in the digits of huge values
  }
  if (ticks.empty()) ticks.push_back(lo);
  return ticks;
}

std::string number_text(double value, double step) {
  int digits = 6;
  if (value != 0 && step > 0) {
    digits = std::clamp(static_cast<int>(std::log10(std::fabs(value) / step)) + 2, 6, 15);
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return text;
}

}  // namespace fovea::cli

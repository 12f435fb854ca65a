#include "cli/verbs/table.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace fovea::cli {
namespace {

struct Unit {
  double size;
  const char* name;
};

template <std::size_t n>
std::string in_units(double x, const Unit (&units)[n]) {
  const Unit* unit = &units[n - 1];
  for (const Unit& candidate : units) {
    if (x >= candidate.size) {
      unit = &candidate;
      break;
    }
  }
  char text[48];
  std::snprintf(text, sizeof text, "%.3g %s", x / unit->size, unit->name);
  return text;
}

}  // namespace

std::string Table::text() const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

std::string number_text(double x, int digits) {
  char text[48];
  std::snprintf(text, sizeof text, "%.*g", digits, x);
  return text;
}

std::string time_text(double seconds) {
  constexpr Unit units[] = {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}};
  return in_units(seconds, units);
}

std::string bytes_text(double bytes) {
  constexpr Unit units[] = {{1073741824.0, "GiB"}, {1048576.0, "MiB"}, {1024.0, "KiB"}, {1, "B"}};
  return in_units(bytes, units);
}

std::string rate_text(double flops) {
  constexpr Unit units[] = {{1e12, "TFLOP/s"}, {1e9, "GFLOP/s"}, {1e6, "MFLOP/s"}, {1, "FLOP/s"}};
  return in_units(flops, units);
}

Progress::Progress(std::string what)
    : what_(std::move(what)), terminal_(::isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
  if (shown_) std::fprintf(stderr, "\r\x1b[K");
}

void Progress::show(double share) {
  if (!terminal_) return;
  shown_ = true;
  std::fprintf(stderr, "\r%s %3.0f %%", what_.c_str(), 100 * share);
  std::fflush(stderr);
}

}  // namespace fovea::cli

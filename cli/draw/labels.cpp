#include "cli/draw/labels.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>

namespace fovea::cli {
namespace {

// The smallest of 1, 2, 5, 10, ... times a power of ten that is not below least.
double round_up(double least) {
  const double power = std::pow(10, std::floor(std::log10(least)));
  // With a little slack, because 0.3 / 3 must give 0.1 and not 0.2.
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

std::string value_text(double value, double step) {
  int digits = 6;
  if (value != 0 && step > 0) {
    digits = std::clamp(static_cast<int>(std::log10(std::fabs(value) / step)) + 2, 6, 15);
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return text;
}

namespace {

constexpr std::string_view ellipsis = "\u2026";

// Ends of prefixes, one per character; a cut anywhere else would split UTF-8.
std::vector<std::size_t> character_ends(std::string_view text) {
  std::vector<std::size_t> ends;
  for (std::string_view rest = text; !rest.empty();) {
    take_code_point(rest);
    ends.push_back(text.size() - rest.size());
  }
  return ends;
}

// The longest prefix that fits together with the tail; at least one character.
std::size_t longest_fit(std::string_view text, std::string_view tail, double width,
                        const Measure& measure) {
  const std::vector<std::size_t> ends = character_ends(text);
  std::size_t lo = 0, hi = ends.size();
  while (lo + 1 < hi) {
    const std::size_t middle = (lo + hi) / 2;
    const std::string candidate = std::string(text.substr(0, ends[middle])) + std::string(tail);
    (measure(candidate) <= width ? lo : hi) = middle;
  }
  return ends[lo];
}

// Prefers a gap of several spaces, which parts formulas, then a space that follows no comma
// (arguments stay together), then any space, then a comma, bracket or operator, then anywhere; but
// only a gap may leave a line less than half full.
std::size_t good_break(std::string_view text, std::size_t limit) {
  const std::size_t gap = text.find("   ", limit / 4);
  if (gap < limit) return gap;
  const std::string_view head = text.substr(0, std::min(text.size(), limit + 1));
  for (std::size_t at = head.rfind(' '); at != std::string_view::npos && at > limit / 2;
       at = head.rfind(' ', at - 1)) {
    if (head[at - 1] != ',') return at;
  }
  for (const std::string_view marks : {std::string_view(" "), std::string_view(",)]|&+*/?:")}) {
    const std::size_t at = text.substr(0, limit).find_last_of(marks);
    if (at != std::string_view::npos && at + 1 > limit / 2) return at + 1;
  }
  return limit;
}

std::string_view trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') + 1 - first);
}

}  // namespace

std::vector<std::string> wrap_text(std::string_view text, double width, std::size_t max_lines,
                                   const Measure& measure) {
  std::vector<std::string> lines;
  for (std::string_view rest = trim(text); !rest.empty() && lines.size() < max_lines;) {
    if (measure(rest) <= width) {
      lines.emplace_back(rest);
      break;
    }
    if (lines.size() + 1 == max_lines) {
      const std::size_t cut = longest_fit(rest, ellipsis, width, measure);
      lines.push_back(std::string(trim(rest.substr(0, cut))) + std::string(ellipsis));
      break;
    }
    const std::size_t cut = good_break(rest, longest_fit(rest, "", width, measure));
    lines.emplace_back(trim(rest.substr(0, cut)));
    rest = trim(rest.substr(cut));
  }
  return lines;
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
  // Longer than it need be, half of a surrogate pair, or beyond the last character: Cairo refuses
  // it.
  constexpr char32_t least[] = {0, 0x80, 0x800, 0x10000};
  const bool bad = code < least[more] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000);
  return bad ? U'\ufffd' : code;
}

std::string printable(std::string_view text) {
  std::string clean;
  while (!text.empty()) {
    const std::string_view before = text;
    const char32_t code = take_code_point(text);
    const std::string_view bytes = before.substr(0, before.size() - text.size());
    if (code < 32 || (code >= 127 && code < 160)) {
      clean += ' ';
    } else if (code == U'\ufffd') {
      clean += "\ufffd";
    } else {
      clean += bytes;
    }
  }
  return clean;
}

}  // namespace fovea::cli

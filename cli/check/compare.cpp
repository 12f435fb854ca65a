#include "cli/check/compare.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

namespace fovea::cli {
namespace {

double limit_of(const std::string& dtype) {
  if (dtype == "bf16") return 6e-3;
  if (dtype == "f16") return 8e-4;
  if (dtype == "f64") return 1e-13;  // only the reference has it: the same loops again
  return 2e-6;
}

std::string number(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", x);
  return text;
}

// "element 12: 3 instead of -inf", or nothing where the two agree in what is not finite.
std::string special_mismatch(std::int64_t i, double x, double reference) {
  const bool both_nan = std::isnan(x) && std::isnan(reference);
  const bool same = both_nan || x == reference || (std::isfinite(x) && std::isfinite(reference));
  if (same) return "";
  return "element " + std::to_string(i) + " is " + number(x) + " instead of " + number(reference);
}

}  // namespace

double error_limit(const std::string& inputs, const std::string& output, bool gradient) {
  return std::max(limit_of(inputs), limit_of(output)) * (gradient ? 3 : 1);
}

Comparison compare(const NamedArray& got, const Array& reference, double limit,
                   const Rounding& rounding) {
  Comparison out{got.name, 0, 0, limit, true, ""};
  double error = 0, norm = 0, largest = 0, worst = 0;
  for (std::int64_t i = 0; i < reference.size() && out.complaint.empty(); ++i) {
    const double x = got.array.get(i), expected = reference.get(i);
    out.complaint = special_mismatch(i, x, expected);
    if (!std::isfinite(x) || !std::isfinite(expected)) continue;
    error += (x - expected) * (x - expected);
    norm += expected * expected;
    largest = std::max(largest, std::abs(expected));
    worst = std::max(worst, std::abs(x - expected));
  }
  error = std::sqrt(error), norm = std::sqrt(norm);
  // A draw of rounding is one of many: an engine's may be several times that.
  const double allowed = limit * norm + 10 * rounding.norm;
  const double allowed_worst = 10 * limit * largest + 10 * rounding.most;
  out.relative = norm > 0 ? error / norm : error;
  out.worst = largest > 0 ? worst / largest : worst;
  if (norm > 0) out.limit = allowed / norm;
  if (!out.complaint.empty()) {
    // said already
  } else if (norm == 0 && error > allowed) {
    out.complaint = "the reference is zero everywhere, this is not";
  } else if (error > allowed) {
    out.complaint = "relative error " + number(out.relative) + " > " + number(out.limit);
  } else if (worst > allowed_worst) {
    out.complaint = "an element is off by " + number(worst) + " > " + number(allowed_worst) +
                    ", where the largest is " + number(largest);
  }
  out.within = out.complaint.empty();
  return out;
}

std::vector<Comparison> compare_all(const Workload& workload, const Results& got,
                                    const Results& reference) {
  std::vector<Comparison> out;
  std::optional<std::map<std::string, Rounding>> rounding;  // made where it is needed
  for (const NamedArray& named : got.arrays) {
    const double limit = error_limit(workload.q.dtype, named.array.dtype, named.gradient);
    const Array& expected = *reference.find(named.name);
    out.push_back(compare(named, expected, limit));
    if (out.back().within) continue;
    if (!rounding) rounding = rounding_of(workload);
    out.back() = compare(named, expected, limit, (*rounding)[named.name]);
  }
  return out;
}

}  // namespace fovea::cli

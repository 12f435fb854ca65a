#include "cli/verbs/run_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "cli/verbs/table.h"

namespace fovea::cli {
namespace {

std::string shape_text(const Array& array) {
  std::string out;
  for (const std::int64_t extent : array.extents) {
    out += (out.empty() ? "" : ",") + std::to_string(extent);
  }
  return "[" + out + "]";
}

// Of the finite elements; the others are counted.
std::string norm_text(const Array& array) {
  double sum = 0;
  std::int64_t other = 0;
  for (std::int64_t i = 0; i < array.size(); ++i) {
    const double x = array.get(i);
    std::isfinite(x) ? sum += x * x : ++other;
  }
  const std::string norm = number_text(std::sqrt(sum), 7);
  return other == 0 ? norm : norm + " (" + std::to_string(other) + " not finite)";
}

std::string checksum_text(const Array& array) {  // FNV-1a of the bytes
  std::uint32_t hash = 2166136261u;
  for (const unsigned char byte : array.bytes) hash = (hash ^ byte) * 16777619u;
  char text[16];
  std::snprintf(text, sizeof text, "%08x", hash);
  return text;
}

double median(const Pass& pass) { return pass.seconds[pass.seconds.size() / 2]; }

std::string pass_text(const char* name, const Pass& pass) {
  if (!pass.ran) return "";
  std::string out = std::string(name) + ": engine " + pass.engine + ", " + time_text(median(pass));
  if (pass.seconds.size() > 1) {
    out += " (median of " + std::to_string(pass.seconds.size()) + ", fastest " +
           time_text(pass.seconds.front()) + ")";
  }
  return out + ", workspace " + bytes_text(static_cast<double>(pass.workspace_bytes)) + "\n";
}

template <class Check>
std::string verdict_text(const Check& check) {
  return check.within ? "ok" : "FAILED: " + check.complaint;
}

template <class Check>
std::string failures(const std::vector<Check>& checks) {
  std::string out;
  for (const Check& one : checks) {
    if (!one.within) out += "; " + one.name + " FAILED: " + one.complaint;
  }
  return out;
}

std::string error_text(const std::vector<Comparison>& comparisons) {
  const Comparison* worst = nullptr;
  for (const Comparison& one : comparisons) {
    const bool worse =
        worst == nullptr || one.relative / one.limit > worst->relative / worst->limit;
    if (worse) worst = &one;
  }
  if (worst == nullptr) return "not checked";
  return std::to_string(comparisons.size()) + " tensors, the worst is " + worst->name + ": " +
         number_text(worst->relative) + " (limit " + number_text(worst->limit) + ")" +
         failures(comparisons);
}

std::string gradient_text(const Checks& checks) {
  if (checks.differences.empty()) return "left out: " + checks.differences_left_out;
  double worst = 0;
  int samples = 0;
  std::string names;
  for (const GradientCheck& one : checks.differences) {
    worst = std::max(worst, one.error);
    samples += one.samples;
    names += (names.empty() ? "" : " ") + one.name;
  }
  return names + ": within " + number_text(worst) + " of finite differences (" +
         std::to_string(samples) + " samples)" + failures(checks.differences);
}

}  // namespace

bool all_within(const Checks& checks) {
  return std::ranges::all_of(checks.comparisons, &Comparison::within) &&
         std::ranges::all_of(checks.differences, &GradientCheck::within);
}

std::string outputs_text(const Results& results) {
  Table table({"output", "shape", "type", "norm", "checksum"});
  for (const NamedArray& named : results.arrays) {
    table.add({named.name, shape_text(named.array), named.array.dtype, norm_text(named.array),
               checksum_text(named.array)});
  }
  return table.text();
}

std::string passes_text(const Results& results) {
  return pass_text("forward", results.forward) + pass_text("backward", results.backward);
}

std::string complaints_text(const Results& results) {
  std::string out;
  for (const Pass* pass : {&results.forward, &results.backward}) {
    for (const std::string& one : pass->complaints) {
      out += "the engine " + pass->engine + " " + one + "\n";
    }
  }
  return out;
}

std::string checks_text(const Checks& checks) {
  Table table({"check", "relative error", "worst element", "limit", "verdict"});
  for (const Comparison& c : checks.comparisons) {
    table.add({c.name, number_text(c.relative), number_text(c.worst), number_text(c.limit),
               verdict_text(c)});
  }
  std::string out = "\nagainst the reference engine\n" + table.text();
  if (checks.differences.empty()) {
    return checks.differences_left_out.empty()
               ? out
               : out + "\nfinite differences left out: " + checks.differences_left_out + "\n";
  }
  Table differences({"gradient", "samples", "kinks left out", "error", "verdict"});
  for (const GradientCheck& c : checks.differences) {
    differences.add({c.name, std::to_string(c.samples), std::to_string(c.kinks),
                     number_text(c.error), verdict_text(c)});
  }
  return out + "\nthe backward against finite differences of the forward, in double precision\n" +
         differences.text();
}

std::string brief_text(const std::string& why, const Results& results, const Checks& checks) {
  std::string engine = results.forward.engine, time = time_text(median(results.forward));
  if (results.backward.ran) {
    if (results.backward.engine != engine) engine += " and " + results.backward.engine;
    time = "forward " + time + ", backward " + time_text(median(results.backward));
  }
  Table table({"engine", engine});
  table.add({"why", why});
  table.add({"time", time});
  table.add({"against the reference", error_text(checks.comparisons)});
  if (results.backward.ran) table.add({"gradients", gradient_text(checks)});
  return table.text();
}

}  // namespace fovea::cli

#include "cli/check/compare.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <random>

#include "cli/check/call.h"
#include "cli/check/gradient_check.h"

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

// "element 12: 3 instead of -inf", or nothing if the two agree in what is not finite.
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
                   const Rounding& rounding, const Rounding& of_p) {
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
  // A draw of rounding is one of many: an engine's may be several times that. It has no sums in
  // another order, either; of a sum that is zero by symmetry, 10.4 times the draws were seen.
  constexpr double draws_apart = 20, draws_of_p = 2;
  const double allowed =
      std::max(limit * norm, draws_of_p * of_p.norm) + draws_apart * rounding.norm;
  const double allowed_worst =
      std::max(10 * limit * largest, draws_of_p * of_p.most) + draws_apart * rounding.most;
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
                    ", and the largest is " + number(largest);
  }
  out.within = out.complaint.empty();
  return out;
}

namespace {

constexpr int draws = 6;

// A unit in the last place, relative.
double unit_of(const std::string& dtype) {
  if (dtype == "bf16") return std::ldexp(1.0, -8);
  if (dtype == "f16") return std::ldexp(1.0, -11);
  return std::ldexp(1.0, -23);
}

// Changes each score as rounding it, and the sum that made it, would, as if at random. Terms that a
// formula adds are left out of that: engines need not lose digits to them. `of_p`: how much its
// probability may change, relative.
std::string shaken_mod(const std::string& mod, double of_p, int draw) {
  char text[160];
  std::snprintf(text, sizeof text,
                ") + (1.2e-7 * abs(score) + %.3g) *"
                " sin(f32(q * 7919 + k * 104729 + h * 1299709 + b * 31 + %d))",
                of_p, draw * 271 + 1);
  return "(" + (mod.empty() ? "score" : mod) + text;
}

// The config is then that of the new problem, which owns what it points to.
Problem with_program(fovea_problem_config& config, fovea_program program) {
  config.program = program;
  const Problem problem(config);
  check(fovea_problem_describe(problem.get(), &config));
  return problem;
}

void shake_program(Workload& workload, double of_p, int draw) {
  const std::string printed = workload.program->line();
  workload.program =
      widened_program(workload.program->get(), shaken_mod(line_value(printed, "mod"), of_p, draw));
  workload.forward = with_program(workload.config, workload.program->get());
  if (workload.backward) {
    workload.backward = with_program(workload.backward_config, workload.program->get());
  }
}

void shake(Array& array, double unit, std::mt19937_64& random) {
  std::uniform_real_distribution<double> noise(-unit, unit);
  for (std::int64_t i = 0; i < array.size(); ++i) array.set(i, array.get(i) * (1 + noise(random)));
}

Results shaken_run(const Workload& workload, const CallOptions& options, double of_p, int draw) {
  Workload shaken = in_double(workload);
  shake_program(shaken, of_p, draw);
  Results results = run_forward(shaken, options);
  if (!workload.backward) return results;
  std::mt19937_64 random(static_cast<std::uint64_t>(draw) + 1);
  Results read = results;
  // Products of 16-bit inputs may round probabilities to 16 bits, whatever o is stored as.
  const double o_unit =
      std::max(unit_of(placement_of(workload, "o").dtype), unit_of(workload.q.dtype));
  for (NamedArray& named : read.arrays) {
    shake(named.array, named.name == "o" ? o_unit : unit_of("f32"), random);
  }
  // Stands for rounding in the products of these inputs.
  for (Array* input : {&shaken.q, &shaken.k, &shaken.v, &shaken.grad_o}) {
    shake(*input, unit_of("f32"), random);
  }
  add_backward(shaken, options, read);
  std::ranges::copy_if(read.arrays, std::back_inserter(results.arrays), &NamedArray::gradient);
  return results;
}

void widen(Rounding& rounding, const Array& a, const Array& b) {
  double sum = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    const double x = a.get(i), y = b.get(i);
    if (!std::isfinite(x) || !std::isfinite(y)) continue;
    sum += (x - y) * (x - y);
    rounding.most = std::max(rounding.most, std::abs(x - y));
  }
  rounding.norm = std::max(rounding.norm, std::sqrt(sum));
}

// By output, the largest of a few draws of the reference engine in double. `of_p`: how much a
// probability may change, relative. Empty if that engine cannot run the workload.
std::map<std::string, Rounding> rounding_of(const Workload& workload, double of_p) {
  CallOptions options;
  options.engine = "reference";
  std::map<std::string, Rounding> out;
  try {
    const Results exact = run_workload(in_double(workload), options);
    for (int draw = 0; draw < draws; ++draw) {
      const Results shaken = shaken_run(workload, options, of_p, draw);
      for (const NamedArray& named : shaken.arrays) {
        widen(out[named.name], named.array, *exact.find(named.name));
      }
    }
  } catch (const Error&) {
    out.clear();
  }
  return out;
}

}  // namespace

std::vector<Comparison> compare_all(const Workload& workload, const Results& got,
                                    const Results& reference) {
  std::vector<Comparison> out;
  std::optional<std::map<std::string, Rounding>> rounding, of_p;  // made if they are needed
  for (const NamedArray& named : got.arrays) {
    const double limit = error_limit(workload.q.dtype, named.array.dtype, named.gradient);
    const Array& expected = *reference.find(named.name);
    out.push_back(compare(named, expected, limit));
    if (out.back().within) continue;
    if (!rounding) rounding = rounding_of(workload, 6e-8);
    out.back() = compare(named, expected, limit, (*rounding)[named.name]);
    // Products of 16-bit inputs may round probabilities to 16 bits.
    const double unit = unit_of(workload.q.dtype);
    if (out.back().within || unit <= unit_of("f32")) continue;
    if (!of_p) of_p = rounding_of(workload, unit / 2);
    out.back() = compare(named, expected, limit, (*rounding)[named.name], (*of_p)[named.name]);
  }
  return out;
}

}  // namespace fovea::cli

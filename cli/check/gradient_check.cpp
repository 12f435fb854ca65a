#include "cli/check/gradient_check.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>

#include "cli/check/call.h"

namespace fovea::cli {
namespace {

constexpr double step = 1e-4;
// The largest error over the conformance list was 6.4e-8 (16648 samples, eight coordinates each,
// from the f32 of captured values); a derivative that is off by a factor of 1.0002 is found
// (tests/cli).
constexpr double tolerance = 1e-6;

// An input that a gradient belongs to: an array, or a scalar, which is an f32.
struct Variable {
  std::string gradient;
  Array* array = nullptr;
  double* scalar = nullptr;
};

std::vector<Variable> variables(Workload& workload) {
  std::vector<Variable> out;
  const std::pair<const char*, Array*> tensors[] = {
      {"q", &workload.q}, {"k", &workload.k}, {"v", &workload.v}};
  for (const auto& [name, array] : tensors) {
    if (workload.wants(name)) out.push_back({"d" + std::string(name), array, nullptr});
  }
  if (workload.wants("sink")) out.push_back({"d_sink", &workload.sink, nullptr});
  for (CapturedTensor& tensor : workload.captured.tensors) {
    if (workload.wants(tensor.name)) {
      out.push_back({"d_" + tensor.name, &tensor.values, nullptr});
    }
  }
  for (CapturedScalar& scalar : workload.captured.scalars) {
    if (workload.wants(scalar.name)) out.push_back({"d_" + scalar.name, nullptr, &scalar.value});
  }
  return out;
}

// What the gradients are gradients of: o with do, lse with dlse.
double loss(const Workload& workload) {
  CallOptions options;
  options.engine = "reference";
  const Results results = run_forward(workload, options);
  const Array& o = *results.find("o");
  double sum = 0;
  for (std::int64_t i = 0; i < o.size(); ++i) sum += o.get(i) * workload.grad_o.get(i);
  if (workload.grad_lse.size() == 0) return sum;
  const Array& lse = *results.find("lse");
  for (std::int64_t i = 0; i < lse.size(); ++i) {
    const double x = lse.get(i);
    if (std::isfinite(x)) sum += x * workload.grad_lse.get(i);  // an empty row has no gradient
  }
  return sum;
}

using Direction = std::vector<double>;  // by element; of a scalar, one

class Checker {
 public:
  Checker(const Workload& workload, int samples)
      : workload_(in_double(workload)), samples_(samples) {
    CallOptions options;
    options.engine = "reference";
    analytic_ = run_workload(workload_, options);
  }

  std::vector<GradientCheck> run(const std::function<void(double)>& progress) {
    const std::vector<Variable> all = variables(workload_);
    std::vector<GradientCheck> out;
    for (const Variable& variable : all) {
      out.push_back(check_one(variable));
      if (progress) progress(static_cast<double>(out.size()) / static_cast<double>(all.size()));
    }
    return out;
  }

 private:
  GradientCheck check_one(const Variable& variable) {
    GradientCheck out;
    out.name = variable.gradient;
    const Array& gradient = *analytic_.find(variable.gradient);
    const std::int64_t size = gradient.size();
    if (size == 0) return out;
    std::mt19937_64 random(seed_for(workload_.seed, variable.gradient));
    if (size > 1) compare_along(variable, random_direction(size, random), out);
    for (std::int64_t i = 0; i < std::min<std::int64_t>(samples_, size); ++i) {
      Direction one(static_cast<std::size_t>(size));
      one[std::uniform_int_distribution<std::size_t>(0, one.size() - 1)(random)] = 1;
      compare_along(variable, one, out);
    }
    if (out.samples == 0 && out.kinks > 2) {
      out.within = false;
      out.complaint = "no sample was smooth enough to compare";
    }
    return out;
  }

  static Direction random_direction(std::int64_t size, std::mt19937_64& random) {
    std::normal_distribution<double> normal;
    Direction out(static_cast<std::size_t>(size));
    for (double& x : out) x = normal(random);
    return out;
  }

  void compare_along(const Variable& variable, const Direction& direction, GradientCheck& out) {
    const Array& gradient = *analytic_.find(variable.gradient);
    double scale = 0;
    for (std::int64_t i = 0; i < gradient.size(); ++i) scale += gradient.get(i) * gradient.get(i);
    scale = std::max(std::sqrt(scale), 1e-3);
    const Slopes coarse = slopes(variable, direction, step);
    const Slopes fine = slopes(variable, direction, step / 2);
    const double coarse_gap = coarse.measured - coarse.expected;
    const double fine_gap = fine.measured - fine.expected;
    if (!(std::abs(coarse_gap - fine_gap) <= 100 * tolerance * scale)) {
      ++out.kinks;
      return;
    }
    // Both are exact up to h^2: this combination up to h^4.
    const double error = std::abs(4 * fine_gap - coarse_gap) / 3 / scale;
    ++out.samples;
    out.error = std::max(out.error, error);
    if (error <= tolerance) return;
    out.within = false;
    char text[128];
    std::snprintf(text, sizeof text, "finite differences give %.9g, the backward %.9g",
                  fine.measured, fine.expected);
    out.complaint = text;
  }

  // The slope of the loss along a direction: by central differences, and by the gradient for the
  // same displacement (an f32 does not move by exactly what it was asked to).
  struct Slopes {
    double measured = 0, expected = 0;
  };
  Slopes slopes(const Variable& variable, const Direction& direction, double h) {
    const Array& gradient = *analytic_.find(variable.gradient);
    return variable.scalar != nullptr ? scalar_slopes(*variable.scalar, gradient.get(0), h)
                                      : array_slopes(*variable.array, gradient, direction, h);
  }

  Slopes array_slopes(Array& array, const Array& gradient, const Direction& direction, double h) {
    const Array before = array;
    const auto move = [&](double by) {
      for (std::int64_t i = 0; i < before.size(); ++i) {
        const double d = direction[static_cast<std::size_t>(i)];
        if (d != 0) array.set(i, before.get(i) + by * d);
      }
    };
    move(h);
    const Array high = array;
    const double above = loss(workload_);
    move(-h);
    double rise = 0;
    for (std::int64_t i = 0; i < before.size(); ++i) {
      const double g = gradient.get(i);
      if (g != 0) rise += g * (high.get(i) - array.get(i));
    }
    const double below = loss(workload_);
    array = before;
    return {(above - below) / (2 * h), rise / (2 * h)};
  }

  Slopes scalar_slopes(double& value, double gradient, double h) {
    const double before = value;
    const double by = h * std::max(1.0, std::abs(before));
    const auto high = static_cast<double>(static_cast<float>(before + by));
    const auto low = static_cast<double>(static_cast<float>(before - by));
    value = high;
    const double above = loss(workload_);
    value = low;
    const double below = loss(workload_);
    value = before;
    return {(above - below) / (high - low), gradient};
  }

  Workload workload_;
  int samples_;
  Results analytic_;
};

}  // namespace

double forward_work(const Workload& workload) {
  const fovea_sizes& sizes = workload.config.sizes;
  double scores = 0;
  for (std::int64_t b = 0; b < sizes.b; ++b) {
    scores += static_cast<double>(workload.q_length(b)) * static_cast<double>(workload.k_length(b));
  }
  return scores * static_cast<double>(sizes.h) * static_cast<double>(sizes.d + sizes.dv);
}

std::vector<GradientCheck> check_gradients(const Workload& workload, int samples,
                                           const std::function<void(double)>& progress) {
  // A config cannot say dv=0 (there it means d), and o has no elements to differentiate.
  if (workload.config.sizes.dv == 0) return {};
  return Checker(workload, samples).run(progress);
}

namespace {

Array widened(const Array& array, const char* dtype = "f64") {
  if (!is_float(array.dtype)) return array;
  Array out = zeros(dtype, array.extents);
  for (std::int64_t i = 0; i < array.size(); ++i) out.set(i, array.get(i));
  return out;
}

std::string word(const std::string& key, const std::string& value) {
  return value.empty() ? "" : key + "=\"" + value + "\" ";
}

Problem widened_problem(fovea_problem_config config, fovea_program program) {
  config.program = program;
  config.dtype = FOVEA_F64;
  config.o_dtype = config.do_dtype = FOVEA_DTYPE_DEFAULT;  // as q
  config.dq_dtype = config.dk_dtype = config.dv_dtype = FOVEA_DTYPE_DEFAULT;
  for (auto* strides :
       {&config.q_strides, &config.k_strides, &config.v_strides, &config.o_strides,
        &config.do_strides, &config.dq_strides, &config.dk_strides, &config.dv_strides}) {
    std::fill(std::begin(*strides), std::end(*strides), 0);
  }
  return Problem(config);
}

}  // namespace

Program widened_program(fovea_program program, const std::string& mod) {
  const std::string printed = report_of(fovea_program_print, program, FOVEA_TEXT_CANONICAL);
  std::string line = word("mod", mod.empty() ? line_value(printed, "mod") : mod);
  for (const char* key : {"mask", "bprop"}) line += word(key, line_value(printed, key));
  fovea_capture_info info{};
  info.struct_size = sizeof info;
  for (std::size_t i = 0; i < fovea_program_tensor_count(program); ++i) {
    check(fovea_program_tensor(program, i, &info));
    const std::string dtype = dtype_name(info.dtype);
    line += word("tensor", std::string(info.name) + ":" + (is_float(dtype) ? "f32" : dtype) + "[" +
                               info.extents + "]");
  }
  for (std::size_t i = 0; i < fovea_program_scalar_count(program); ++i) {
    check(fovea_program_scalar(program, i, &info));
    line += word("scalar", std::string(info.name) + ":" + dtype_name(info.dtype));
  }
  return Program(line);
}

Workload in_double(const Workload& from) {
  Workload out = from;
  out.program = widened_program(from.program->get());
  out.forward = widened_problem(from.config, out.program->get());
  describe(*out.forward, out.config);
  if (from.backward) {
    out.backward = widened_problem(from.backward_config, out.program->get());
    describe(*out.backward, out.backward_config);
  }
  for (Array* array : {&out.q, &out.k, &out.v, &out.grad_o, &out.sink, &out.grad_lse}) {
    *array = widened(*array);
  }
  for (CapturedTensor& tensor : out.captured.tensors) tensor.values = widened(tensor.values, "f32");
  out.spread_captured = false;
  return out;
}

}  // namespace fovea::cli

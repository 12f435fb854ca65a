#include "capi/problem.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <sstream>

#include "attention/extents.h"
#include "attention/problem_text.h"
#include "attention/validate.h"
#include "base/error.h"
#include "base/words.h"
#include "capi/arguments.h"
#include "capi/report.h"
#include "cuda/driver.h"

using namespace fovea;
using namespace fovea::capi;

namespace {

// The fields of the struct that belong to one of the eight tensors, in the order of
// named_tensors(). q, k and v share one type.
struct ConfigFields {
  fovea_dtype fovea_problem_config::* dtype;
  const char* dtype_name;
  int64_t (fovea_problem_config::*strides)[4];
};
using Config = fovea_problem_config;
constexpr ConfigFields fields[] = {
    {&Config::dtype, "config.dtype", &Config::q_strides},
    {&Config::dtype, "config.dtype", &Config::k_strides},
    {&Config::dtype, "config.dtype", &Config::v_strides},
    {&Config::o_dtype, "config.o_dtype", &Config::o_strides},
    {&Config::do_dtype, "config.do_dtype", &Config::do_strides},
    {&Config::dq_dtype, "config.dq_dtype", &Config::dq_strides},
    {&Config::dk_dtype, "config.dk_dtype", &Config::dk_strides},
    {&Config::dv_dtype, "config.dv_dtype", &Config::dv_strides},
};

TensorSpec to_spec(const Config& config, const ConfigFields& field, DType otherwise) {
  TensorSpec spec;
  spec.dtype = to_dtype(config.*field.dtype, field.dtype_name, otherwise);
  std::array<std::int64_t, 4> s{};
  if (read_strides(config.*field.strides, s)) spec.strides = {s[0], s[1], s[2], s[3]};
  return spec;
}

void set_tensors(Problem& problem, const Config& config) {
  const DType own = to_dtype(config.dtype, "config.dtype", DType::F32);
  for (std::size_t i = 0; i < std::size(fields); ++i) {
    const NamedTensor& tensor = named_tensors()[i];
    const bool is_gradient = i >= 4;
    // The default that a forward's validation expects of gradients it does not have.
    const DType otherwise =
        is_gradient && problem.direction == Direction::Forward ? DType::F32 : own;
    problem.*tensor.spec = to_spec(config, fields[i], otherwise);
  }
}

void check_reserved(const Config& config) {
  for (std::size_t i = 0; i < std::size(config.reserved); ++i) {
    if (config.reserved[i] == nullptr) continue;
    throw InvalidArgument("config.reserved[" + std::to_string(i) +
                          "] is set; reserved fields must be NULL");
  }
}

Problem to_problem(const Config& config) {
  check_reserved(config);
  Problem p;
  p.direction = to_enum<Direction>(config.direction, 3, "config.direction", "fovea_direction");
  p.layout = to_enum<Layout>(config.layout, 4, "config.layout", "fovea_layout");
  p.sizes = to_sizes(config.sizes);
  set_tensors(p, config);
  if (config.program != nullptr) p.program = config.program->with_literals(literals_of(p.q.dtype));
  if (config.tensor_strides != nullptr) set_tensor_strides(p, config.tensor_strides);
  const bool in_double = literals_of(p.q.dtype) == ir::Literals::F64;
  const auto rounded = static_cast<float>(config.scale_f64);
  if (config.scale != 0) p.scale = config.scale;
  if (config.scale_f64 != 0) p.scale = in_double ? config.scale_f64 : rounded;
  p.dropout = config.dropout;
  p.rng = to_enum<Rng>(config.rng, 2, "config.rng", "fovea_rng");
#define FOVEA_FLAG(field, in_config) p.field = config.in_config != 0;
#define FOVEA_NUMBER(name) p.name = config.name;
#include "fovea/fields.def"
  p.precision = config.strict != 0 ? Precision::Strict : Precision::Default;
  if (p.direction != Direction::Forward) {
    want_gradients(p, config.grads == nullptr ? "q,k,v" : config.grads);
  } else if (config.grads != nullptr) {
    throw InvalidArgument("config.grads is '" + std::string(config.grads).substr(0, 64) +
                          "', but a forward has no gradients");
  }
  validate(p);
  return p;
}

// Everything but the pointers, which live with a handle.
void describe(const Problem& p, Config& config) {
  config.direction = static_cast<fovea_direction>(p.direction);
  config.layout = static_cast<fovea_layout>(p.layout);
  config.sizes = from_sizes(p.sizes);
  for (std::size_t i = 0; i < std::size(fields); ++i) {
    const TensorSpec& spec = p.*named_tensors()[i].spec;
    const bool absent = p.direction == Direction::Forward && i >= 4;
    if (!absent) config.*fields[i].dtype = from_dtype(spec.dtype);
    if (!spec.strides) continue;
    write_strides(spec.strides->list(), config.*fields[i].strides);
  }
  config.scale = static_cast<float>(p.scale.value_or(0));
  if (literals_of(p.q.dtype) == ir::Literals::F64) config.scale_f64 = p.scale.value_or(0);
  config.dropout = p.dropout;
  config.rng = p.rng == Rng::Portable ? FOVEA_RNG_PORTABLE : FOVEA_RNG_ENGINE;
#define FOVEA_FLAG(field, in_config) config.in_config = p.field;
#define FOVEA_NUMBER(name) config.name = p.name;
#include "fovea/fields.def"
  config.strict = p.precision == Precision::Strict;
}

// The struct has grown since its first version.
constexpr std::size_t first_size = offsetof(fovea_problem_config, tensor_strides);

}  // namespace

fovea_problem_s::fovea_problem_s(Problem made)
    : problem(std::make_shared<const Problem>(std::move(made))),
      program(problem->program, literals_of(problem->q.dtype)),
      tensor_strides(tensor_strides_text(*problem)) {
  if (problem->direction != Direction::Forward) grads = wanted_gradients(*problem);
}

fovea_status fovea_problem_create(const fovea_problem_config* config, fovea_problem* problem) {
  return create(problem, "problem", [&] {
    const auto known = read_struct(config, {"config", "fovea_problem_config"}, first_size);
    return new fovea_problem_s(to_problem(known));
  });
}

fovea_status fovea_problem_parse(const char* line, fovea_problem* problem,
                                 fovea_problem* backward) {
  return guarded([&] {
    need(problem, "problem");
    *problem = nullptr;
    if (backward != nullptr) *backward = nullptr;
    need(line, "line");
    ProblemLine parsed = parse_problem_line(line);
    const bool both = parsed.forward && parsed.backward;
    auto first = std::make_unique<fovea_problem_s>(
        std::move(parsed.forward ? *parsed.forward : *parsed.backward));
    if (both) {
      auto second = std::make_unique<fovea_problem_s>(std::move(*parsed.backward));
      first->partner = second->problem;
      second->partner = first->problem;
      if (backward != nullptr) *backward = second.release();
    }
    *problem = first.release();
  });
}

void fovea_problem_destroy(fovea_problem problem) { delete problem; }

fovea_status fovea_line_value(const char* line, const char* key, fovea_report* value) {
  return report_text(value, "value", [&] {
    need(line, "line");
    need(key, "key");
    for (const Word& word : split_words(line)) {
      if (word.key == key) return word.value;
    }
    return std::string();
  });
}

fovea_status fovea_suggest(const char* word, const char* candidates, fovea_report* text) {
  return report_text(text, "text", [&] {
    need(word, "word");
    need(candidates, "candidates");
    std::istringstream list(candidates);
    const std::vector<std::string> names(std::istream_iterator<std::string>(list), {});
    return did_you_mean(word, names);
  });
}

fovea_status fovea_problem_program(fovea_problem problem, fovea_program* program) {
  return create(program, "program",
                [&] { return new fovea_program_s(content(problem, "problem").program); });
}

fovea_status fovea_problem_print(fovea_problem problem, fovea_report* report) {
  return report_text(report, "report", [&] { return print(*content(problem, "problem").problem); });
}

int fovea_problem_equal(fovea_problem a, fovea_problem b) {
  return a != nullptr && b != nullptr && *a->problem == *b->problem ? 1 : 0;
}

fovea_status fovea_problem_describe(fovea_problem problem, fovea_problem_config* config) {
  return guarded([&] {
    fovea_problem_s& described = content(problem, "problem");
    fovea_problem_config filled{};
    describe(*described.problem, filled);
    filled.program = &described.program;
    if (described.problem->direction != Direction::Forward) {
      filled.grads = described.grads.c_str();
    }
    if (!described.tensor_strides.empty()) {
      filled.tensor_strides = described.tensor_strides.c_str();
    }
    write_struct(config, filled, {"config", "fovea_problem_config"}, first_size);
  });
}

namespace fovea::capi {

PlanWords to_words(const fovea_problem_s& problem, const fovea_plan_options* options) {
  if (options == nullptr) return {"", "cpu", problem.partner};
  constexpr std::size_t first_size = offsetof(fovea_plan_options, partner);
  const auto known = read_struct(options, {"options", "fovea_plan_options"}, first_size);
  const auto& partner = known.partner == nullptr ? problem.partner : known.partner->problem;
  if (partner && (partner->direction == Direction::Tangent ||
                  problem.problem->direction == Direction::Tangent)) {
    throw InvalidArgument("options.partner: a tangent is no half of a pair");
  }
  if (partner && partner->direction == problem.problem->direction) {
    const char* const both = partner->direction == Direction::Forward ? "forward" : "backward";
    throw InvalidArgument("options.partner is a " + std::string(both) +
                          ", as is the problem; a pair is a forward and a backward");
  }
  return {known.engine == nullptr ? "" : known.engine,
          known.device == nullptr ? "cpu" : known.device, partner};
}

PlanRequest to_request(const PlanWords& words) {
  return {words.device == "cpu" ? cpu_device() : cuda::find_device(std::string(words.device)),
          std::string(words.engine), words.partner};
}

}  // namespace fovea::capi

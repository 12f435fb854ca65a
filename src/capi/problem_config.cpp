#include "capi/problem_config.h"

#include <algorithm>
#include <iterator>

#include "attention/gradients.h"
#include "attention/tensor_strides.h"
#include "attention/validate.h"
#include "base/error.h"
#include "capi/arguments.h"
#include "capi/handles.h"
#include "capi/strides.h"

namespace fovea::capi {
namespace {

// The fields of the struct that belong to one of the eight tensors, in the order of
// named_tensors(). q, k and v share one type.
struct TensorFields {
  fovea_dtype fovea_problem_config::* dtype;
  const char* dtype_name;
  int64_t (fovea_problem_config::*strides)[4];
};
using Config = fovea_problem_config;
constexpr TensorFields fields[] = {
    {&Config::dtype, "config.dtype", &Config::q_strides},
    {&Config::dtype, "config.dtype", &Config::k_strides},
    {&Config::dtype, "config.dtype", &Config::v_strides},
    {&Config::o_dtype, "config.o_dtype", &Config::o_strides},
    {&Config::do_dtype, "config.do_dtype", &Config::do_strides},
    {&Config::dq_dtype, "config.dq_dtype", &Config::dq_strides},
    {&Config::dk_dtype, "config.dk_dtype", &Config::dk_strides},
    {&Config::dv_dtype, "config.dv_dtype", &Config::dv_strides},
};

TensorSpec to_spec(const Config& config, const TensorFields& field, DType otherwise) {
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

}  // namespace

Problem to_problem(const Config& config) {
  check_reserved(config);
  Problem p;
  p.direction = to_enum<Direction>(config.direction, 2, "config.direction", "fovea_direction");
  p.layout = to_enum<Layout>(config.layout, 4, "config.layout", "fovea_layout");
  p.sizes = to_sizes(config.sizes);
  set_tensors(p, config);
  if (config.program != nullptr) p.program = config.program->program;
  if (config.tensor_strides != nullptr) set_tensor_strides(p, config.tensor_strides);
  if (config.scale != 0) p.scale = config.scale;
  p.dropout = config.dropout;
  p.rng = to_enum<Rng>(config.rng, 2, "config.rng", "fovea_rng");
#define FOVEA_FLAG(field, in_config) p.field = config.in_config != 0;
#define FOVEA_NUMBER(name) p.name = config.name;
#include "fovea/fields.def"
  p.precision = config.strict != 0 ? Precision::Strict : Precision::Default;
  if (p.direction == Direction::Backward) {
    want_gradients(p, config.grads == nullptr ? "q,k,v" : config.grads);
  } else if (config.grads != nullptr) {
    throw InvalidArgument("config.grads is '" + std::string(config.grads).substr(0, 64) +
                          "', but only a backward has gradients (direction FOVEA_BACKWARD)");
  }
  validate(p);
  return p;
}

void describe(const Problem& p, Config& config) {
  config.direction = p.direction == Direction::Forward ? FOVEA_FORWARD : FOVEA_BACKWARD;
  config.layout = static_cast<fovea_layout>(p.layout);
  config.sizes = from_sizes(p.sizes);
  for (std::size_t i = 0; i < std::size(fields); ++i) {
    const TensorSpec& spec = p.*named_tensors()[i].spec;
    const bool absent = p.direction == Direction::Forward && i >= 4;
    if (!absent) config.*fields[i].dtype = from_dtype(spec.dtype);
    if (!spec.strides) continue;
    const std::int64_t s[] = {spec.strides->b, spec.strides->h, spec.strides->s, spec.strides->d};
    write_strides(s, config.*fields[i].strides);
  }
  config.scale = p.scale.value_or(0);
  config.dropout = p.dropout;
  config.rng = p.rng == Rng::Portable ? FOVEA_RNG_PORTABLE : FOVEA_RNG_ENGINE;
#define FOVEA_FLAG(field, in_config) config.in_config = p.field;
#define FOVEA_NUMBER(name) config.name = p.name;
#include "fovea/fields.def"
  config.strict = p.precision == Precision::Strict;
}

}  // namespace fovea::capi

#include "cli/check/placement.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>

namespace fovea::cli {
namespace {

struct Named {
  const char* name;
  fovea_dtype fovea_problem_config::* dtype;
  std::int64_t (fovea_problem_config::*strides)[4];
  bool of_keys, of_values;
};
constexpr Named eight[] = {
    {"q", &fovea_problem_config::dtype, &fovea_problem_config::q_strides, false, false},
    {"k", &fovea_problem_config::dtype, &fovea_problem_config::k_strides, true, false},
    {"v", &fovea_problem_config::dtype, &fovea_problem_config::v_strides, true, true},
    {"o", &fovea_problem_config::o_dtype, &fovea_problem_config::o_strides, false, true},
    {"do", &fovea_problem_config::do_dtype, &fovea_problem_config::do_strides, false, true},
    {"dq", &fovea_problem_config::dq_dtype, &fovea_problem_config::dq_strides, false, false},
    {"dk", &fovea_problem_config::dk_dtype, &fovea_problem_config::dk_strides, true, false},
    {"dv", &fovea_problem_config::dv_dtype, &fovea_problem_config::dv_strides, true, true},
};

const Named& find(const std::string& name) {
  for (const Named& tensor : eight) {
    if (name == tensor.name) return tensor;
  }
  throw std::logic_error("no tensor is called " + name);
}

// Picks batch, head, position and feature in the order of the layout; packed ones have no batch.
std::vector<std::int64_t> in_order(fovea_layout layout, const std::int64_t (&x)[4]) {
  switch (layout) {
    case FOVEA_BHSD: return {x[0], x[1], x[2], x[3]};
    case FOVEA_BSHD: return {x[0], x[2], x[1], x[3]};
    case FOVEA_SBHD: return {x[2], x[0], x[1], x[3]};
    case FOVEA_THD: return {x[2], x[1], x[3]};
  }
  throw std::logic_error("unknown layout");
}

bool all_zero(const std::int64_t (&strides)[4]) {
  return strides[0] == 0 && strides[1] == 0 && strides[2] == 0 && strides[3] == 0;
}

}  // namespace

Placement placement_of(const Workload& workload, const std::string& name) {
  const Named& tensor = find(name);
  const bool gradient = name.size() == 2;
  const fovea_problem_config& config = gradient ? workload.backward_config : workload.config;
  const fovea_sizes& sizes = config.sizes;
  const std::int64_t rows = workload.packed() ? (tensor.of_keys ? sizes.t_k : sizes.t_q)
                                              : (tensor.of_keys ? sizes.skv : sizes.sq);
  const std::int64_t extents[4] = {sizes.b, tensor.of_keys ? sizes.hkv : sizes.h, rows,
                                   tensor.of_values ? sizes.dv : sizes.d};
  const fovea_dtype own = config.*tensor.dtype;
  const std::string dtype = dtype_name(own == FOVEA_DTYPE_DEFAULT ? config.dtype : own);
  Placement out = Placement::dense(dtype, in_order(config.layout, extents));
  const std::int64_t(&strides)[4] = config.*tensor.strides;
  if (all_zero(strides)) return out;
  out.strides = in_order(config.layout, strides);
  std::ranges::replace(out.strides, std::int64_t{FOVEA_ZERO_STRIDE}, std::int64_t{0});
  return out;
}

Placement captured_placement(const Workload& workload, const CapturedTensor& tensor) {
  Placement out = Placement::dense(tensor.values.dtype, tensor.values.extents);
  const char* const text = workload.config.tensor_strides;
  std::istringstream words(text == nullptr ? "" : text);
  for (std::string word; words >> word;) {
    if (!word.starts_with(tensor.name + ":")) continue;
    std::istringstream numbers(word.substr(tensor.name.size() + 1));
    for (std::int64_t& stride : out.strides) {
      numbers >> stride;
      numbers.ignore();
    }
  }
  return out;
}

Placement row_placement(const Workload& workload) {
  const fovea_sizes& sizes = workload.config.sizes;
  if (workload.packed()) {
    return Placement::dense(statistics_dtype(workload), {sizes.h, sizes.t_q});
  }
  return Placement::dense(statistics_dtype(workload), {sizes.b, sizes.h, sizes.sq});
}

std::int64_t key_row(const Workload& workload, std::int64_t b, std::int64_t g, std::int64_t k,
                     std::int64_t features) {
  const fovea_sizes& sizes = workload.config.sizes;
  switch (workload.config.layout) {
    case FOVEA_BHSD: return ((b * sizes.hkv + g) * sizes.skv + k) * features;
    case FOVEA_BSHD: return ((b * sizes.skv + k) * sizes.hkv + g) * features;
    case FOVEA_SBHD: return ((k * sizes.b + b) * sizes.hkv + g) * features;
    case FOVEA_THD: break;
  }
  const std::int64_t start = workload.k_starts[static_cast<std::size_t>(b)];
  return ((start + k) * sizes.hkv + g) * features;
}

std::string statistics_dtype(const Workload& workload) {
  return workload.config.dtype == FOVEA_F64 ? "f64" : "f32";
}

}  // namespace fovea::cli

#include "capi/call.h"

#include <cmath>

#include "attention/rules.h"
#include "capi/arguments.h"
#include "capi/strides.h"

namespace fovea::capi {
namespace {

// Dense strides follow this call's sizes, which may differ from the problem's.
Strides default_strides(const Problem& problem, const NamedTensor& tensor, const Sizes& sizes) {
  const TensorSpec& spec = problem.*tensor.spec;
  if (spec.strides) return *spec.strides;
  const std::int64_t heads = heads_of(sizes, tensor), features = features_of(sizes, tensor);
  Strides strides = dense_strides(problem, heads, length_of(sizes, tensor), features);
  if (problem.layout == Layout::Sbhd) strides.s = sizes.b * heads * features;
  return strides;
}

// Checked before anything is multiplied by them.
Sizes call_sizes(const Problem& problem, const fovea_bindings& given) {
  if (given.sizes == nullptr) return problem.sizes;
  const Sizes sizes = to_sizes(*given.sizes);
  if (!(sizes == problem.sizes)) check_sizes(sizes, problem.layout);
  return sizes;
}

// The fields of both structs, in the order of named_tensors().
struct TensorFields {
  fovea_tensor fovea_bindings::* given;
  BoundTensor Bindings::* bound;
};
constexpr TensorFields fields[] = {
    {&fovea_bindings::q, &Bindings::q},           {&fovea_bindings::k, &Bindings::k},
    {&fovea_bindings::v, &Bindings::v},           {&fovea_bindings::o, &Bindings::o},
    {&fovea_bindings::grad_o, &Bindings::grad_o}, {&fovea_bindings::grad_q, &Bindings::grad_q},
    {&fovea_bindings::grad_k, &Bindings::grad_k}, {&fovea_bindings::grad_v, &Bindings::grad_v},
};

template <class T, class Given>
PerCall<T> per_call(const Given& given, T otherwise) {
  return {given.is_set != 0 ? given.value : otherwise, given.device};
}

template <class T>
void read_pointer(PerCall<T>& value) {
  if (value.device == nullptr) return;
  value.value = *value.device;
  value.device = nullptr;
}

}  // namespace

float default_scale(const Problem& problem, const Sizes& sizes) {
  if (problem.scale) return *problem.scale;
  return sizes.d > 0 ? static_cast<float>(1 / std::sqrt(static_cast<double>(sizes.d))) : 1.0f;
}

Call::Call(const PlanFacts& plan, const fovea_bindings& given)
    : problem_(*plan.problem),
      executor_(given.executor),
      sizes_(call_sizes(problem_, given)),
      captured_(problem_.program,
                {"bindings", given.tensors, given.tensor_count, given.scalars, given.scalar_count},
                {sizes_, problem_.h_global}) {
  bindings_.sizes = sizes_;
  bind_tensors(plan.rules, given);
  bind_values(given);
  bindings_.literals = plan.literals;
  if (plan.device == DeviceKind::Cpu) read_pointers();
}

void Call::bind_tensors(const CallRules& rules, const fovea_bindings& given) {
  const bool own_sizes = sizes_ == problem_.sizes;
  for (std::size_t i = 0; i < std::size(fields); ++i) {
    const fovea_tensor& tensor = given.*fields[i].given;
    BoundTensor& bound = bindings_.*fields[i].bound;
    std::array<std::int64_t, 4> s{};
    bound.data = tensor.data;
    bound.strides = read_strides(tensor.stride, s) ? Strides{s[0], s[1], s[2], s[3]}
                    : own_sizes                    ? rules.tensor(i).strides
                                : default_strides(problem_, named_tensors()[i], sizes_);
  }
  bindings_.lse = given.lse;
  bindings_.grad_lse = given.grad_lse;
  bindings_.row_max = given.row_max;
  bindings_.max_logit = given.max_logit;
  bindings_.sink = given.sink;
  bindings_.grad_sink = given.grad_sink;
  bindings_.q_lengths = given.q_lengths;
  bindings_.k_lengths = given.k_lengths;
  bindings_.q_starts = given.q_starts;
  bindings_.k_starts = given.k_starts;
  bindings_.q_offsets = given.q_offsets;
  bindings_.k_offsets = given.k_offsets;
}

void Call::bind_values(const fovea_bindings& given) {
  bindings_.tensors = captured_.tensors();
  bindings_.scalars = captured_.scalars();
  bindings_.tensor_gradients = captured_.tensor_gradients();
  bindings_.scalar_gradients = captured_.scalar_gradients();
  bindings_.scale = per_call(given.scale, default_scale(problem_, sizes_));
  bindings_.dropout = {problem_.dropout, nullptr};
  bindings_.seed = {given.seed.value, given.seed.device};
  bindings_.offset = {given.offset.value, given.offset.device};
  bindings_.b_offset = per_call(given.b_offset, problem_.b_offset);
  bindings_.h_offset = per_call(given.h_offset, problem_.h_offset);
  bindings_.q_offset = per_call(given.q_offset, problem_.q_offset);
  bindings_.k_offset = per_call(given.k_offset, problem_.k_offset);
  bindings_.h_global = problem_.h_global;
  bindings_.workspace = given.workspace;
  bindings_.workspace_bytes = given.workspace_bytes;
  bindings_.stream = given.stream;
  bindings_.executor = executor_.get();
  bindings_.threads = executor_.limit();
}

// On the CPU the device is the host: values bound as pointers are read now, so that validation sees
// what the engine will.
void Call::read_pointers() {
  captured_.read_pointers(problem_.program);
  read_pointer(bindings_.scale);
  read_pointer(bindings_.seed);
  read_pointer(bindings_.offset);
  read_pointer(bindings_.b_offset);
  read_pointer(bindings_.h_offset);
  read_pointer(bindings_.q_offset);
  read_pointer(bindings_.k_offset);
}

}  // namespace fovea::capi

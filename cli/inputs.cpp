// The inputs of a workload under the names that `run --dump` writes.
#include "call.h"

namespace fovea::cli {
namespace {

Array of_integers(const std::vector<std::int32_t>& values) {
  Array out = zeros("i32", {static_cast<std::int64_t>(values.size())});
  for (std::size_t i = 0; i < values.size(); ++i) {
    out.set(static_cast<std::int64_t>(i), values[i]);
  }
  return out;
}

}  // namespace

std::vector<NamedArray> input_arrays(const Workload& workload) {
  std::vector<NamedArray> out{{"q", workload.q}, {"k", workload.k}, {"v", workload.v}};
  if (workload.config.sink != 0) out.push_back({"sink", workload.sink});
  if (workload.backward) {
    out.push_back({"do", workload.grad_o});
    if (workload.backward_config.has_grad_lse != 0) out.push_back({"dlse", workload.grad_lse});
  }
  for (const CapturedTensor& tensor : workload.captured.tensors) {
    out.push_back({tensor.name, tensor.values});
  }
  for (const CapturedScalar& scalar : workload.captured.scalars) {
    Array value = zeros(scalar.is_float ? "f32" : "i32", {});
    value.set(0, scalar.value);
    out.push_back({scalar.name, value});
  }
  const std::pair<const char*, const std::vector<std::int32_t>*> integers[] = {
      {"qlens", &workload.q_lengths},    {"klens", &workload.k_lengths},
      {"cu_q", &workload.q_starts},      {"cu_k", &workload.k_starts},
      {"q_offset", &workload.q_offsets}, {"k_offset", &workload.k_offsets}};
  for (const auto& [name, values] : integers) {
    if (!values->empty()) out.push_back({name, of_integers(*values)});
  }
  return out;
}

}  // namespace fovea::cli

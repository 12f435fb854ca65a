#include "cli/check/call.h"

#include <algorithm>
#include <chrono>

#include "cli/check/call_memory.h"

namespace fovea::cli {
namespace {

Pass run_pass(const Problem& problem, CallMemory& memory, const CallOptions& options) {
  Gpu* const gpu = Gpu::find(options.device);
  const Plan plan(problem, {options.engine, options.device});

  Pass pass;
  pass.ran = true;
  pass.engine = plan.engine();
  pass.workspace_bytes = plan.workspace();
  memory.set_workspace(pass.workspace_bytes);
  memory.set_threads(options.threads);
  double spent = 0;
  for (int i = 0; i < options.repeat || spent < options.seconds; ++i) {
    if (i > 0 && options.seconds == 0) memory.poison_outputs();
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    plan.run(memory.bindings());
    if (gpu != nullptr) gpu->wait();
    pass.seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    spent += pass.seconds.back();
  }
  std::ranges::sort(pass.seconds);
  memory.fetch();
  pass.complaints = memory.complaints();
  return pass;
}

// The inputs of a workload under the names that `run --dump` writes.

Array of_integers(const std::vector<std::int32_t>& values) {
  Array out = zeros("i32", {static_cast<std::int64_t>(values.size())});
  for (std::size_t i = 0; i < values.size(); ++i) {
    out.set(static_cast<std::int64_t>(i), values[i]);
  }
  return out;
}

}  // namespace

const Array* Results::find(const std::string& name) const {
  const auto found = std::ranges::find(arrays, name, &NamedArray::name);
  return found == arrays.end() ? nullptr : &found->array;
}

Results run_forward(const Workload& workload, const CallOptions& options) {
  Results results;
  CallMemory memory(workload, false, results, Gpu::find(options.device));
  results.forward = run_pass(*workload.forward, memory, options);
  memory.collect(results.arrays, false);
  return results;
}

void add_backward(const Workload& workload, const CallOptions& options, Results& results) {
  CallMemory memory(workload, true, results, Gpu::find(options.device));
  results.backward = run_pass(*workload.backward, memory, options);
  memory.collect(results.arrays, true);
}

Results run_workload(const Workload& workload, const CallOptions& options) {
  Results results = run_forward(workload, options);
  if (workload.backward) add_backward(workload, options, results);
  return results;
}

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

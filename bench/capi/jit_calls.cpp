// What engine jit's own part of a call costs the host: everything that a plan does but the driver's
// launches. The driver that is loaded for it does nothing, and no kernel is compiled.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "bench/capi/allocations.h"
#include "bench/capi/load_idle_gpu.h"
#include "bench/cases.h"
#include "cuda/find_device.h"
#include "engines/jit/bake.h"
#include "engines/jit/plan.h"
#include "tests/attention/bound_call.h"

namespace fovea::bench {
namespace {

void measure(benchmark::State& state, const std::string& direction) {
  static const bool loaded = (load_idle_gpu(), true);
  benchmark::DoNotOptimize(loaded);
  const Case& row = cases[state.range(0)];
  state.SetLabel(row.name);
  test::BoundCall call("b=1 h=1 sq=128 d=64 dtype=bf16 " + direction + " " + row.words);
  const Baking baking = jit::bake(call.problem);
  Device device = cuda::find_device("cuda:0");
  device.shared_memory_per_block = find_device("h200").shared_memory_per_block;
  jit::Prepared prepared = jit::prepare(baking.baked.problem, device);
  std::vector<cuda::Handle> kernels(prepared.units.size(), &state);
  const auto plan = jit::make_plan(std::move(prepared), device, std::move(kernels));
  std::vector<std::byte> workspace(plan->workspace_bytes(call.problem.sizes));
  call.bindings.workspace = workspace.data();
  call.bindings.workspace_bytes = workspace.size();
  call.bindings.tensors = call.tensors;
  call.bindings.scalars = call.scalars;
  call.bindings.tensor_gradients = call.tensor_gradients;
  call.bindings.scalar_gradients = call.scalar_gradients;
  call.bindings.literals = baking.literals;
  plan->run(call.bindings);
  const CountedAllocations allocations(state);
  for (auto _ : state) plan->run(call.bindings);
}

void jit_forward(benchmark::State& state) { measure(state, "lse=1"); }
void jit_backward(benchmark::State& state) { measure(state, "direction=backward"); }
BENCHMARK(jit_forward)->DenseRange(0, plain_cases - 1);
BENCHMARK(jit_backward)->DenseRange(0, plain_cases - 1);

}  // namespace
}  // namespace fovea::bench

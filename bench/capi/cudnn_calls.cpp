// What engine cudnn's own part of a call costs the host: everything that a plan does but cuDNN's
// execute. Its graphs do nothing, and neither do the driver and the cuDNN that are loaded for it.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "bench/capi/allocations.h"
#include "bench/capi/load_idle_gpu.h"
#include "bench/cases.h"
#include "cuda/find_device.h"
#include "engines/cudnn/bake.h"
#include "engines/cudnn/plan.h"
#include "tests/attention/bound_call.h"

namespace fovea::bench {
namespace {

class IdleGraph : public cudnn::Graph {
 public:
  std::size_t workspace_bytes() const override { return 4096; }
  void execute(void* handle, std::span<void*> pointers, void* workspace) const override {
    benchmark::DoNotOptimize(handle);
    benchmark::DoNotOptimize(pointers.data());
    benchmark::DoNotOptimize(workspace);
  }
};

void measure(benchmark::State& state, const std::string& direction) {
  static const bool loaded = (load_idle_gpu(), true);
  benchmark::DoNotOptimize(loaded);
  const Case& row = cases[state.range(0)];
  state.SetLabel(row.name);
  test::BoundCall call("b=1 h=1 sq=128 d=64 dtype=bf16 " + direction + " " + row.words);
  const Baking baking = cudnn::bake(call.problem);
  std::vector<cudnn::Slice> slices;
  slices.push_back({0, call.problem.sizes.b, std::make_shared<const IdleGraph>(),
                    cudnn::lower(baking.baked.problem, call.problem.sizes.b)});
  const auto plan =
      cudnn::make_plan(baking.baked.problem, cuda::find_device("cuda:0"), std::move(slices));
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

void cudnn_forward(benchmark::State& state) { measure(state, "lse=1"); }
void cudnn_backward(benchmark::State& state) { measure(state, "direction=backward"); }
BENCHMARK(cudnn_forward)->DenseRange(0, plain_cases - 1);
BENCHMARK(cudnn_backward)->DenseRange(0, plain_cases - 1);

}  // namespace
}  // namespace fovea::bench

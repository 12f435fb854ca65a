// What an engine's own part of a call on a GPU costs the host: everything that a plan does but
// cuDNN's execute and the driver's launches. The driver and the cuDNN that are loaded for it do
// nothing (tests/host_gpu), and no kernel is compiled.
#include <benchmark/benchmark.h>
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/capi/idle_engine.h"
#include "bench/cases.h"
#include "cuda/driver.h"
#include "engines/cudnn/lower.h"
#include "engines/cudnn/plan.h"
#include "engines/jit/bake.h"
#include "engines/jit/plan.h"
#include "tests/attention/bound_call.h"

namespace fovea::bench {
namespace {

struct GpuEngine {
  Baking (*bake)(const Problem& problem);
  std::unique_ptr<Plan> (*make_plan)(const Problem& baked, const Device& device);
};

// Must run before anything looks for the real libraries: the idle ones are then found by their
// names.
bool load_idle_gpu() {
  setenv("FOVEA_HOST_GPU_IDLE", "1", /*replace=*/1);
  const auto build = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
  const auto folder = build / "tests" / "host-gpu";
  for (const char* name : {"libcuda.so.1", "libcudnn.so.9"}) {
    if (dlopen((folder / name).c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
      throw std::runtime_error(dlerror());
    }
  }
  return true;
}

// A small call of the case that the state names, with these further words of its line.
void measure_idle_calls(benchmark::State& state, const std::string& words,
                        const GpuEngine& engine) {
  static const bool loaded = load_idle_gpu();
  benchmark::DoNotOptimize(loaded);
  const Case& row = cases[state.range(0)];
  state.SetLabel(row.name);
  test::BoundCall call("b=1 h=1 sq=128 d=64 dtype=bf16 " + words + " " + row.words);
  const Baking baking = engine.bake(call.problem);
  const auto plan = engine.make_plan(baking.baked.problem, cuda::find_device("cuda:0"));
  call.bind(*plan, baking.literals);
  plan->run(call.bindings);
  const CountedAllocations allocations(state);
  for (auto _ : state) plan->run(call.bindings);
}

class IdleGraph : public cudnn::Graph {
 public:
  std::size_t workspace_bytes() const override { return 4096; }
  void execute(void* handle, std::span<void*> pointers, void* workspace) const override {
    benchmark::DoNotOptimize(handle);
    benchmark::DoNotOptimize(pointers.data());
    benchmark::DoNotOptimize(workspace);
  }
};

std::unique_ptr<Plan> make_cudnn_plan(const Problem& baked, const Device& device) {
  const std::int64_t batches = baked.sizes.b;
  std::vector<cudnn::Slice> slices;
  slices.push_back({0, batches, std::make_shared<const IdleGraph>(), cudnn::lower(baked, batches)});
  return cudnn::make_plan(baked, device, std::move(slices));
}
constexpr GpuEngine cudnn_engine{cudnn::bake, make_cudnn_plan};

void cudnn_forward(benchmark::State& state) { measure_idle_calls(state, "lse=1", cudnn_engine); }
void cudnn_backward(benchmark::State& state) {
  measure_idle_calls(state, "direction=backward", cudnn_engine);
}
BENCHMARK(cudnn_forward)->DenseRange(0, plain_cases - 1);
BENCHMARK(cudnn_backward)->DenseRange(0, plain_cases - 1);

std::unique_ptr<Plan> make_jit_plan(const Problem& baked, const Device& device) {
  Device h200 = device;
  h200.shared_memory_per_block = find_device("h200").shared_memory_per_block;
  jit::PreparedPlan prepared = jit::prepare(baked, h200);
  static int kernel;
  std::vector<cuda::Handle> kernels(prepared.units.size(), &kernel);
  return jit::make_plan(std::move(prepared), h200, std::move(kernels));
}
constexpr GpuEngine jit_engine{jit::bake, make_jit_plan};

void jit_forward(benchmark::State& state) { measure_idle_calls(state, "lse=1", jit_engine); }
void jit_backward(benchmark::State& state) {
  measure_idle_calls(state, "direction=backward", jit_engine);
}
BENCHMARK(jit_forward)->DenseRange(0, plain_cases - 1);
BENCHMARK(jit_backward)->DenseRange(0, plain_cases - 1);

}  // namespace
}  // namespace fovea::bench

// Engine jit's own part of a call: everything that a plan does but the driver's launches.
#include <vector>

#include "cuda/find_device.h"
#include "bench/capi/idle_gpu_calls.h"
#include "bench/cases.h"
#include "engines/jit/bake.h"
#include "engines/jit/plan.h"

namespace fovea::bench {
namespace {

std::unique_ptr<Plan> make_plan(const Problem& baked, const Device& device) {
  Device h200 = device;
  h200.shared_memory_per_block = find_device("h200").shared_memory_per_block;
  jit::Prepared prepared = jit::prepare(baked, h200);
  static int kernel;
  std::vector<cuda::Handle> kernels(prepared.units.size(), &kernel);
  return jit::make_plan(std::move(prepared), h200, std::move(kernels));
}
constexpr GpuEngine engine{jit::bake, make_plan};

void jit_forward(benchmark::State& state) { measure_idle_calls(state, "lse=1", engine); }
void jit_backward(benchmark::State& state) {
  measure_idle_calls(state, "direction=backward", engine);
}
BENCHMARK(jit_forward)->DenseRange(0, plain_cases - 1);
BENCHMARK(jit_backward)->DenseRange(0, plain_cases - 1);

}  // namespace
}  // namespace fovea::bench

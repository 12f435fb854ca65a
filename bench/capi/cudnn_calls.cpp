// Engine cudnn's own part of a call: everything that a plan does but cuDNN's execute, which does
// nothing here.
#include <vector>

#include "bench/capi/idle_gpu_calls.h"
#include "bench/cases.h"
#include "engines/cudnn/lower.h"
#include "engines/cudnn/plan.h"

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

std::unique_ptr<Plan> make_plan(const Problem& baked, const Device& device) {
  const std::int64_t batches = baked.sizes.b;
  std::vector<cudnn::Slice> slices;
  slices.push_back({0, batches, std::make_shared<const IdleGraph>(), cudnn::lower(baked, batches)});
  return cudnn::make_plan(baked, device, std::move(slices));
}
constexpr GpuEngine engine{cudnn::bake, make_plan};

void cudnn_forward(benchmark::State& state) { measure_idle_calls(state, "lse=1", engine); }
void cudnn_backward(benchmark::State& state) {
  measure_idle_calls(state, "direction=backward", engine);
}
BENCHMARK(cudnn_forward)->DenseRange(0, plain_cases - 1);
BENCHMARK(cudnn_backward)->DenseRange(0, plain_cases - 1);

}  // namespace
}  // namespace fovea::bench

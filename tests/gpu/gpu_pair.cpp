#include "gpu_pair.h"

#include <dlfcn.h>

#include <cstdlib>
#include <sstream>
#include <stdexcept>

#include "cli/check/compare.h"
#include "cli/check/placed.h"

namespace fovea::gpu_tests {
namespace {

// What a backward is bound to before its forward has run.
cli::Results empty_outputs(const cli::Workload& workload) {
  cli::Results out;
  for (const auto& [name, placement] : {std::pair("o", cli::placement_of(workload, "o")),
                                        std::pair("lse", cli::row_placement(workload))}) {
    out.arrays.push_back({name, cli::zeros(placement.dtype, placement.extents)});
  }
  return out;
}

template <class Function>
Function* find(const char* name) {
  void* const found = dlsym(cuda::driver()->library, name);
  if (found == nullptr) throw std::runtime_error(std::string("the driver has no ") + name);
  return reinterpret_cast<Function*>(found);
}

}  // namespace

OnGpu::OnGpu() {
  if (tested_device().starts_with("cuda")) here_.emplace(0);
}

void CapturedGraph::launch(void* stream) const {
  cuda::check(find<int(void*, void*)>("cuGraphLaunch")(executable_, stream), "cuGraphLaunch");
}

Stream::Stream() {
  constexpr unsigned non_blocking = 1;
  cuda::check(find<int(void**, unsigned)>("cuStreamCreate")(&stream_, non_blocking),
              "cuStreamCreate");
}

void Stream::wait() const {
  cuda::check(find<int(void*)>("cuStreamSynchronize")(stream_), "cuStreamSynchronize");
}

CapturedGraph Stream::capture(const std::function<void()>& enqueue) const {
  void *graph = nullptr, *executable = nullptr;
  cuda::check(find<int(void*, int)>("cuStreamBeginCapture_v2")(stream_, 0), "cuStreamBeginCapture");
  enqueue();
  cuda::check(find<int(void*, void**)>("cuStreamEndCapture")(stream_, &graph),
              "cuStreamEndCapture");
  cuda::check(find<int(void**, void*, unsigned long long)>("cuGraphInstantiateWithFlags")(
                  &executable, graph, 0),
              "cuGraphInstantiateWithFlags");
  return CapturedGraph(executable);
}

std::string tested_engine() {
  const char* const name = std::getenv("FOVEA_TEST_ENGINE");
  return name == nullptr ? "jit" : name;
}

std::string tested_device() {
  const char* const name = std::getenv("FOVEA_TEST_DEVICE");
  return name == nullptr ? "cuda:0" : name;
}

bool has_engine(const std::string& name) {
  std::istringstream names(fovea_engines());
  for (std::string one; names >> one;) {
    if (one == name) return true;
  }
  return false;
}

GpuPair::GpuPair(const std::string& line, const std::string& engine)
    : GpuPair(cli::make_workload(line, 0), engine) {}

GpuPair::GpuPair(cli::Workload workload, const std::string& engine)
    : workload_(std::move(workload)), engine_(engine), gpu_(cli::Gpu::find(tested_device())) {
  if (gpu_ != nullptr) seed_ = gpu_->allocate(256);
  send_seed(workload_.seed);
  forward_ = make(*workload_.forward, false);
  if (!workload_.backward) return;
  backward_ = make(*workload_.backward, true);
  fovea_bindings& bound = backward_.memory->bindings();
  bound.o.data = forward_.memory->bindings().o.data;
  bound.lse = forward_.memory->bindings().lse;
}

void GpuPair::send_seed(std::uint64_t seed) {
  if (gpu_ != nullptr) gpu_->send(seed_.get(), &seed, sizeof seed);
}

void GpuPair::wait() {
  if (gpu_ != nullptr) gpu_->wait();
}

GpuPair::Direction GpuPair::make(const Problem& problem, bool backward) {
  Direction out;
  out.plan.emplace(problem, Where{engine_, tested_device()});
  out.memory =
      std::make_unique<cli::CallMemory>(workload_, backward, empty_outputs(workload_), gpu_);
  out.memory->set_workspace(out.plan->workspace());
  // On the device, so that a CUDA graph can be replayed with another one. cuDNN's own generator
  // takes a number.
  if (workload_.config.dropout != 0 && gpu_ != nullptr && engine_ != "cudnn") {
    out.memory->bindings().seed.device = static_cast<const std::uint64_t*>(seed_.get());
  }
  wait();
  return out;
}

void GpuPair::enqueue(void* stream) {
  for (Direction* one : {&forward_, &backward_}) {
    if (one->memory == nullptr) continue;
    one->memory->bindings().stream = stream;
    one->plan->run(one->memory->bindings());
  }
}

void GpuPair::refill(const cli::Workload& other) {
  send_seed(other.seed);
  forward_.memory->refill(other);
  if (backward_.memory) backward_.memory->refill(other);
  wait();
}

void GpuPair::poison() {
  forward_.memory->poison_outputs();
  if (backward_.memory) backward_.memory->poison_outputs();
  wait();
}

std::vector<cli::NamedArray> GpuPair::outputs() {
  std::vector<cli::NamedArray> out;
  forward_.memory->fetch();
  forward_.memory->collect(out, false);
  if (!backward_.memory) return out;
  backward_.memory->fetch();
  backward_.memory->collect(out, true);
  return out;
}

std::vector<cli::NamedArray> GpuPair::run_once() {
  poison();
  enqueue(nullptr);
  wait();
  return outputs();
}

std::vector<std::string> GpuPair::complaints() const {
  std::vector<std::string> out = forward_.memory->complaints();
  if (!backward_.memory) return out;
  for (const std::string& one : backward_.memory->complaints()) out.push_back(one);
  return out;
}

void GpuPair::drop_plans() {
  forward_.plan.reset();
  backward_.plan.reset();
}

const cli::Array& named(const std::vector<cli::NamedArray>& arrays, const std::string& name) {
  for (const cli::NamedArray& one : arrays) {
    if (one.name == name) return one.array;
  }
  throw std::runtime_error("no output " + name);
}

std::string different(const std::vector<cli::NamedArray>& a,
                      const std::vector<cli::NamedArray>& b) {
  std::string out;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].array.bytes != b.at(i).array.bytes) out += a[i].name + " ";
  }
  return out;
}

std::string beyond_limits(const cli::Workload& workload, std::vector<cli::NamedArray> outputs) {
  cli::CallOptions options;
  options.engine = "reference";
  cli::Results got;
  got.arrays = std::move(outputs);
  std::string out;
  for (const cli::Comparison& one :
       cli::compare_all(workload, got, cli::run_workload(workload, options))) {
    if (!one.within) out += one.name + ": " + one.complaint + "; ";
  }
  return out;
}

}  // namespace fovea::gpu_tests

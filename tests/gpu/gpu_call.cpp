#include "gpu_call.h"

#include <dlfcn.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <random>
#include <sstream>
#include <stdexcept>

namespace fovea::gpu_tests {
namespace {

template <class F>
F* find(const char* name) {
  void* const found = dlsym(cuda::driver()->library, name);
  if (found == nullptr) throw std::runtime_error(std::string("the driver has no ") + name);
  return reinterpret_cast<F*>(found);
}

void need(fovea_status status) {
  if (status != FOVEA_OK) throw std::runtime_error(fovea_last_error());
}

}  // namespace

bool has_gpu() { return std::getenv("FOVEA_TEST_DEVICE") != nullptr; }

OnGpu::OnGpu() {
  if (std::string(std::getenv("FOVEA_TEST_DEVICE")).starts_with("cuda")) here_.emplace(0);
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

GpuMemory::GpuMemory(std::size_t bytes) : bytes_(bytes) {
  cuda::check(cuda::driver()->allocate(&address_, std::max<std::size_t>(bytes, 256)), "cuMemAlloc");
}
GpuMemory::~GpuMemory() { cuda::driver()->release(address_); }
void GpuMemory::send(const void* from) const {
  cuda::check(cuda::driver()->to_device(address_, from, bytes_), "cuMemcpyHtoD");
}
void GpuMemory::fetch(void* to) const {
  cuda::check(find<int(void*, std::uint64_t, std::size_t)>("cuMemcpyDtoH_v2")(to, address_, bytes_),
              "cuMemcpyDtoH");
}

GpuCall::GpuCall(const std::string& line, unsigned seed) {
  const OnGpu here;
  need(fovea_problem_parse(line.c_str(), &problem_, nullptr));
  fovea_plan_options options{};
  options.struct_size = sizeof options;
  options.engine = "cudnn";
  options.device = "cuda:0";
  need(fovea_plan_create(problem_, &options, &plan_));
  fovea_problem_config config{};
  config.struct_size = sizeof config;
  need(fovea_problem_describe(problem_, &config));
  const fovea_sizes& s = config.sizes;
  const bool packed = config.layout == FOVEA_THD;
  const auto rows = static_cast<std::size_t>(packed ? s.t_q : s.b * s.sq);
  const auto elements = rows * static_cast<std::size_t>(s.h * s.d);
  q_ = std::make_unique<GpuMemory>(elements * 2);
  k_ = std::make_unique<GpuMemory>(elements * 2);
  v_ = std::make_unique<GpuMemory>(elements * 2);
  o_ = std::make_unique<GpuMemory>(elements * 2);
  lse_ = std::make_unique<GpuMemory>(rows * static_cast<std::size_t>(s.h) * 4);
  if (packed) bind_starts(line);
  std::size_t bytes = 0;
  need(fovea_plan_workspace(plan_, nullptr, &bytes));
  workspace_ = std::make_unique<GpuMemory>(bytes);
  bindings_.struct_size = sizeof bindings_;
  bindings_.q.data = q_->data(), bindings_.k.data = k_->data(), bindings_.v.data = v_->data();
  bindings_.o.data = o_->data(), bindings_.lse = lse_->data();
  bindings_.workspace = workspace_->data(), bindings_.workspace_bytes = bytes;
  fill_inputs(seed);
}

// Queries and keys alike: those of cu_q.
void GpuCall::bind_starts(const std::string& line) {
  std::vector<std::int32_t> starts;
  const std::string key = "cu_q=";
  std::istringstream numbers(line.substr(line.find(key) + key.size()));
  for (std::int32_t x = 0; numbers >> x;) {
    starts.push_back(x);
    if (numbers.peek() == ',') numbers.ignore();
  }
  starts_ = std::make_unique<GpuMemory>(starts.size() * sizeof starts[0]);
  move_starts(starts);
  bindings_.q_starts = bindings_.k_starts = static_cast<const std::int32_t*>(starts_->data());
}

void GpuCall::move_starts(const std::vector<std::int32_t>& starts) { starts_->send(starts.data()); }

GpuCall::~GpuCall() {
  fovea_plan_destroy(plan_);
  fovea_problem_destroy(problem_);
}

void GpuCall::drop_plan() {
  fovea_plan_destroy(plan_);
  plan_ = nullptr;
}

void GpuCall::fill_inputs(unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (const auto* tensor : {&q_, &k_, &v_}) {
    std::vector<std::uint16_t> bits((*tensor)->bytes() / 2);
    for (std::uint16_t& x : bits) {
      x = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(normal(random)) >> 16);
    }
    (*tensor)->send(bits.data());
  }
}

void GpuCall::clear_output() {
  const std::vector<std::uint16_t> poison(o_->bytes() / 2, 0xffff);
  o_->send(poison.data());
}

void GpuCall::enqueue(void* stream) {
  fovea_bindings bound = bindings_;
  bound.stream = stream;
  need(fovea_plan_run(plan_, &bound));
}

std::vector<std::uint16_t> GpuCall::output() const {
  std::vector<std::uint16_t> bits(o_->bytes() / 2);
  o_->fetch(bits.data());
  return bits;
}

std::vector<std::uint16_t> GpuCall::run_once() const {
  const OnGpu here;
  need(fovea_plan_run(plan_, &bindings_));
  cuda::check(find<int()>("cuCtxSynchronize")(), "cuCtxSynchronize");
  return output();
}

}  // namespace fovea::gpu_tests

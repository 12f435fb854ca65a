#include "cli/check/call.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "cli/check/captured.h"
#include "cli/check/placed.h"

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

namespace {

// Every second element of the last dimension, rows five elements longer: no engine may assume more.
Placement spread(Placement dense) {
  std::int64_t stride = 2;
  for (std::size_t i = dense.extents.size(); i-- > 0;) {
    dense.strides[i] = stride;
    stride = stride * std::max<std::int64_t>(dense.extents[i], 1) + 5;
  }
  return dense;
}

extern "C" void run_in_turn(void*, std::size_t count, void (*task)(void* context, std::size_t i),
                            void* context) {
  while (count > 0) task(context, --count);
}
constexpr fovea_executor one_in_turn{sizeof(fovea_executor), nullptr, 1, run_in_turn};

Placement dense_like(const Array& array) { return Placement::dense(array.dtype, array.extents); }

}  // namespace

CallMemory::CallMemory(const Workload& workload, bool backward, const Results& before, Gpu* gpu)
    : workload_(workload), gpu_(gpu) {
  bindings_.struct_size = sizeof bindings_;
  bindings_.q.data = input("q", placement_of(workload, "q"), workload.q);
  bindings_.k.data = input("k", placement_of(workload, "k"), workload.k);
  bindings_.v.data = input("v", placement_of(workload, "v"), workload.v);
  if (workload.config.sink != 0) {
    bindings_.sink = input("sink", dense_like(workload.sink), workload.sink);
  }
  bind_sequences();
  tensors_ = bind_tensors(workload.captured);
  scalars_ = bind_scalars(workload.captured);
  for (std::size_t i = 0; i < tensors_.size(); ++i) bind_captured(i);
  if (workload.config.device_values != 0) bind_values();
  backward ? bind_backward(before) : bind_forward();
  bindings_.tensors = tensors_.data(), bindings_.tensor_count = tensors_.size();
  bindings_.scalars = scalars_.data(), bindings_.scalar_count = scalars_.size();
}

void CallMemory::set_workspace(std::size_t bytes) {
  workspace_ = Placed(Placement::dense("u8", {static_cast<std::int64_t>(bytes)}));
  // Not NaN, which some code leaves out: floats of 3.0, doubles next to 0, integers beyond any
  // tensor.
  constexpr std::uint64_t pattern = 0x0101010140404040;
  auto* const first = static_cast<unsigned char*>(workspace_.data());
  for (std::size_t i = 0; i < bytes; i += sizeof pattern) {
    std::memcpy(first + i, &pattern, std::min(sizeof pattern, bytes - i));
  }
  if (gpu_ != nullptr) workspace_.put_on(*gpu_);
  bindings_.workspace = workspace_.data();
  bindings_.workspace_bytes = bytes;
}

void CallMemory::set_threads(Threads threads) {
  bindings_.executor = threads == Threads::OneInTurn ? &one_in_turn : nullptr;
}

void CallMemory::poison_outputs() {
  for (const std::string& name : order_) {
    outputs_.at(name).poison();
    outputs_.at(name).send();
  }
}

void CallMemory::refill(const Workload& other) {
  for (const NamedArray& named : input_arrays(other)) {
    for (const std::string& name : {named.name, "captured " + named.name}) {
      const auto found = inputs_.find(name);
      if (found != inputs_.end()) found->second.replace(named.array);
    }
  }
}

void CallMemory::fetch() {
  for (auto* const group : {&inputs_, &outputs_}) {
    for (auto& [name, placed] : *group) placed.fetch();
  }
  workspace_.fetch();
}

std::vector<std::string> CallMemory::complaints() const {
  std::vector<std::string> out;
  for (const auto& [name, placed] : inputs_) {
    if (!placed.bytes_untouched()) out.push_back("wrote to the input " + name);
  }
  for (const auto& [name, placed] : outputs_) {
    if (!placed.surroundings_untouched()) out.push_back("wrote outside " + name);
    if (placed.has_unwritten_element()) out.push_back("left elements of " + name + " unwritten");
  }
  if (!workspace_.surroundings_untouched()) out.push_back("wrote outside its workspace");
  return out;
}

void CallMemory::collect(std::vector<NamedArray>& arrays, bool gradient) const {
  for (const std::string& name : order_) {
    arrays.push_back({name, outputs_.at(name).take(), gradient});
  }
}

void* CallMemory::input(const std::string& name, const Placement& placement, const Array& values) {
  Placed& placed = inputs_.emplace(name, Placed(placement, values)).first->second;
  if (gpu_ != nullptr) placed.put_on(*gpu_);
  return placed.data();
}

void* CallMemory::output(const std::string& name, const Placement& placement) {
  order_.push_back(name);
  Placed& placed = outputs_.emplace(name, Placed(placement)).first->second;
  if (gpu_ != nullptr) placed.put_on(*gpu_);
  return placed.data();
}

void CallMemory::bind_sequences() {
  const auto pointer = [this](const char* name, const std::vector<std::int32_t>& x) {
    if (x.empty()) return static_cast<const std::int32_t*>(nullptr);
    if (gpu_ == nullptr) return x.data();
    Array array = zeros("i32", {static_cast<std::int64_t>(x.size())});
    std::memcpy(array.bytes.data(), x.data(), x.size() * sizeof x[0]);
    return static_cast<const std::int32_t*>(input(name, dense_like(array), array));
  };
  bindings_.q_lengths = pointer("qlens", workload_.q_lengths);
  bindings_.k_lengths = pointer("klens", workload_.k_lengths);
  bindings_.q_starts = pointer("cu_q", workload_.q_starts);
  bindings_.k_starts = pointer("cu_k", workload_.k_starts);
  bindings_.q_offsets = pointer("q_offset", workload_.q_offsets);
  bindings_.k_offsets = pointer("k_offset", workload_.k_offsets);
  bindings_.seed.value = workload_.seed;
  bindings_.offset.value = workload_.offset;
}

void CallMemory::bind_captured(std::size_t i) {
  const CapturedTensor& tensor = workload_.captured.tensors[i];
  Placement placement = captured_placement(workload_, tensor);
  if (workload_.spread_captured) placement = spread(placement);
  tensors_[i].array.data = input("captured " + tensor.name, placement, tensor.values);
  std::ranges::copy(placement.strides, tensors_[i].array.stride);
  const bool one_element = std::ranges::all_of(placement.strides, [](auto x) { return x == 0; });
  if (one_element) tensors_[i].array.stride[0] = FOVEA_ZERO_STRIDE;
}

// Numbers by pointers, as traced programs have them.
void CallMemory::bind_values() {
  const auto place = [this](const std::string& name, const std::string& dtype, double value) {
    Array one = zeros(dtype, {1});
    one.set(0, value);
    return input(name, dense_like(one), one);
  };
  const auto offset = [&](const char* name, std::int32_t value, fovea_i32_value& bound) {
    if (value != 0) bound.device = static_cast<const std::int32_t*>(place(name, "i32", value));
  };
  const fovea_problem_config& config = workload_.config;
  const double scale = config.scale != 0 ? static_cast<double>(config.scale)
                                         : 1 / std::sqrt(static_cast<double>(config.sizes.d));
  bindings_.scale.device = static_cast<const float*>(place("scale", "f32", scale));
  offset("h_offset", config.h_offset, bindings_.h_offset);
  offset("q_offset", config.q_offset, bindings_.q_offset);
  offset("k_offset", config.k_offset, bindings_.k_offset);
  for (std::size_t i = 0; i < scalars_.size(); ++i) {
    const CapturedScalar& scalar = workload_.captured.scalars[i];
    scalars_[i].device = place("scalar " + scalar.name,
                               scalar.is_float ? statistics_dtype(workload_) : "i32", scalar.value);
  }
}

void CallMemory::bind_forward() {
  const fovea_problem_config& config = workload_.config;
  const Placement rows = row_placement(workload_);
  bindings_.o.data = output("o", placement_of(workload_, "o"));
  const Placement heads = Placement::dense(rows.dtype, {config.sizes.h});
#define FOVEA_OUTPUT(name, extent, saved) \
  if (config.name != 0) bindings_.name = output(#name, extent);
#include "fovea/fields.def"
}

void CallMemory::bind_backward(const Results& before) {
  bindings_.o.data = input("o", placement_of(workload_, "o"), *before.find("o"));
  bindings_.lse = input("lse", row_placement(workload_), *before.find("lse"));
  bindings_.grad_o.data = input("do", placement_of(workload_, "do"), workload_.grad_o);
  if (workload_.backward_config.has_grad_lse != 0) {
    bindings_.grad_lse = input("dlse", row_placement(workload_), workload_.grad_lse);
  }
  if (workload_.wants("q")) bindings_.grad_q.data = output("dq", placement_of(workload_, "dq"));
  if (workload_.wants("k")) bindings_.grad_k.data = output("dk", placement_of(workload_, "dk"));
  if (workload_.wants("v")) bindings_.grad_v.data = output("dv", placement_of(workload_, "dv"));
  if (workload_.wants("sink")) {
    bindings_.grad_sink = output("d_sink", dense_like(workload_.sink));
  }
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const CapturedTensor& tensor = workload_.captured.tensors[i];
    if (!workload_.wants(tensor.name)) continue;
    Placement placement = dense_like(tensor.values);
    if (workload_.spread_captured) placement = spread(placement);
    fovea_array& gradient = tensors_[i].gradient;
    gradient = tensors_[i].array;
    std::ranges::copy(placement.strides, gradient.stride);
    gradient.data = output("d_" + tensor.name, placement);
  }
  for (fovea_scalar_binding& scalar : scalars_) {
    if (!workload_.wants(scalar.name)) continue;
    scalar.gradient =
        output("d_" + std::string(scalar.name), Placement::dense(statistics_dtype(workload_), {}));
  }
}

}  // namespace fovea::cli

#include "planner/verify.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "attention/bindings.h"
#include "attention/rules.h"
#include "base/dtype.h"
#include "base/error.h"
#include "cuda/driver.h"
#include "ir/topology.h"

namespace fovea {
namespace {

template <class Function>
Function driver_call(const char* name) {
  const cuda::Driver* const driver = cuda::driver();
  Function function = nullptr;
  if (driver == nullptr || !cuda::find_function(driver->library, name, function)) {
    throw DeviceError(std::string("the CUDA driver has no ") + name);
  }
  return function;
}

// Memory that a call has bound, readable on the host: itself if it is the host's, else a copy.
class HostMemory {
 public:
  // On a GPU: waits for the stream first.
  HostMemory(DeviceKind device, void* stream) : device_(device) {
    if (device_ == DeviceKind::Cpu) return;
    using Synchronize = cuda::Result (*)(cuda::Handle stream);
    cuda::check(driver_call<Synchronize>("cuStreamSynchronize")(stream), "cuStreamSynchronize");
  }

  // `bytes` bytes from there on; null stays null. Lives as long as this object.
  void* fetch(const void* from, std::size_t bytes) {
    if (from == nullptr || device_ == DeviceKind::Cpu) return const_cast<void*>(from);
    using Copy = cuda::Result (*)(void* to, cuda::Address from, std::size_t bytes);
    std::vector<std::byte>& copy = copies_.emplace_back(bytes);
    const auto address = reinterpret_cast<cuda::Address>(from);
    cuda::check(driver_call<Copy>("cuMemcpyDtoH_v2")(copy.data(), address, bytes), "cuMemcpyDtoH");
    return copy.data();
  }

 private:
  DeviceKind device_;
  std::vector<std::vector<std::byte>> copies_;
};

// Scores that the reference engine computes: about a second of one core at head dim 128.
constexpr std::int64_t most_scores = std::int64_t{1} << 20;

// Larger than any rounding error (docs/semantics.md has the limits that engines are tested for).
double limit_of(DType dtype) {
  return dtype == DType::BF16 ? 4e-2 : dtype == DType::F16 ? 8e-3 : 2e-4;
}

bool uses(const ir::Program& program, ir::Op leaf) {
  const ir::Order order = ir::operands_first(program.formulas());
  return std::ranges::any_of(order.nodes,
                             [leaf](const ir::Node* node) { return node->op() == leaf; });
}

// Compares computed numbers with those of the reference.
class Comparison {
 public:
  void add(double got, double wanted) {
    if (std::isnan(wanted)) return;
    if (std::isfinite(wanted)) wanted_ += wanted * wanted;
    if (got == wanted) return;
    if (std::isnan(got)) ++nan_;
    const bool finite = std::isfinite(got) && std::isfinite(wanted);
    const double difference = finite ? got - wanted : std::numeric_limits<double>::infinity();
    differences_ += difference * difference;
  }

  std::string verdict(const std::string& name, double limit) const {
    if (nan_ != 0) return name + " has " + std::to_string(nan_) + " NaN and the reference none";
    const double relative = std::sqrt(differences_ / std::max(wanted_, 1e-30));
    if (relative <= limit) return "";
    return name + " differs from the reference by " + std::to_string(relative) + " of its norm";
  }

 private:
  double differences_ = 0, wanted_ = 0;
  std::int64_t nan_ = 0;
};

// The part of a call that is computed again, as a call of its own.
class Sample {
 public:
  explicit Sample(const FinishedCall& call)
      : whole_(call.bindings),
        problem_(call.problem),
        part_(call.bindings),
        memory_(call.device, call.bindings.stream) {
    choose(call.problem);
    bind_tensors();
    bind_rows();
    bind_sequences();
    bind_values();
  }

  std::string run_and_compare(Planner& planner) {
    const PlannedCall planned = planner.make_plan(problem_, {cpu_device(), "reference", nullptr});
    part_.literals = planned.literals;
    std::vector<std::byte> workspace(planned.plan->workspace_bytes(part_.sizes) + 64);
    void* aligned = workspace.data();
    std::size_t space = workspace.size();
    part_.workspace = std::align(64, space - 64, aligned, space);
    part_.workspace_bytes = space;
    planned.plan->run(part_);
    std::string out;
    for (const Output& output : outputs_) {
      if (out.empty()) out = compare(output);
    }
    return out;
  }

 private:
  // Of the engine as it was bound, and of the reference, dense: [heads, rows, features].
  struct Output {
    std::string name;
    const void* got;
    DType dtype, wanted_dtype;
    Strides strides;
    std::int64_t heads, rows, features;
    std::vector<std::byte> wanted;
  };

  bool packed() const { return problem_.layout == Layout::Thd; }

  // The middle sequence and head, and rows from the middle on.
  void choose(const Problem& problem) {
    const Sizes& s = whole_.sizes;
    group_ = s.h / s.hkv;
    g_ = s.hkv / 2;
    Sizes& part = part_.sizes;
    part.h = group_;
    part.hkv = 1;
    rows_all_ = packed() ? s.t_q : s.sq;
    rows_ = rows_all_;
    if (!packed()) {
      b_ = s.b / 2;
      part.b = 1;
      const std::int64_t fit = most_scores / std::max<std::int64_t>(group_ * s.skv, 1);
      if (fit < rows_ && !uses(problem.program, ir::Op::SizeSq))
        rows_ = std::max<std::int64_t>(fit, 1);
      first_ = (rows_all_ - rows_) / 2;
      part.sq = rows_;
    }
    problem_.sizes = part;
    problem_.h_global = problem.h_global != 0 ? problem.h_global : static_cast<std::int32_t>(s.h);
    problem_.want_tensors.assign(problem.want_tensors.size(), false);
    problem_.want_scalars.assign(problem.want_scalars.size(), false);
    problem_.want_sink = problem_.max_logit = problem_.capture = problem_.device_values = false;
    // Gradients of keys and values are sums over all rows.
    if (rows_ != rows_all_) problem_.want_k = problem_.want_v = false;
    part_.h_global = problem_.h_global;
  }

  void bind_tensors();
  void bind_rows();
  void bind_sequences();
  void bind_values();
  void* compact_rows(const void* all);
  void* output_rows(const char* name, void* all);
  static std::string compare(const Output& output);

  template <class T>
  T* numbers(const T* from, std::int64_t first, std::int64_t count) {
    if (from == nullptr) return nullptr;
    return static_cast<T*>(
        memory_.fetch(from + first, static_cast<std::size_t>(count) * sizeof(T)));
  }
  template <class T>
  void fetch(PerCall<T>& value) {
    if (value.device == nullptr) return;
    value.value = *numbers(value.device, 0, 1);
    value.device = nullptr;
  }
  // Memory that lives as long as this object.
  std::byte* keep(std::size_t bytes) { return kept_.emplace_back(bytes).data(); }

  const Bindings& whole_;
  Problem problem_;
  Bindings part_;
  HostMemory memory_;
  std::int64_t b_ = 0, g_ = 0, group_ = 1, first_ = 0, rows_ = 0, rows_all_ = 0;
  DType row_type_ = DType::F32;
  std::vector<Output> outputs_;
  std::vector<std::vector<std::byte>> kept_;
  std::vector<ir::TensorView> tensors_;
  std::vector<PerCall<ir::ScalarValue>> scalars_;
};

void Sample::bind_tensors() {
  constexpr BoundTensor Bindings::* fields[] = {
#define FOVEA_TENSOR(field, key, of_keys, of_values, output) &Bindings::field,
#include "fovea/fields.def"
  };
  for (std::size_t i = 0; i < std::size(fields); ++i) {
    const NamedTensor& tensor = named_tensors()[i];
    BoundTensor& bound = part_.*fields[i];
    if (!takes_part(problem_, tensor) || bound.data == nullptr) continue;
    TensorSpec& spec = problem_.*tensor.spec;
    const std::int64_t heads = tensor.of_keys ? 1 : group_;
    const std::int64_t rows = !tensor.of_keys ? rows_
                              : packed()      ? part_.sizes.t_k
                                              : part_.sizes.skv;
    const std::int64_t features = features_of(part_.sizes, tensor);
    const Strides& s = bound.strides;
    const std::int64_t first =
        (packed() ? 0 : b_ * s.b) + g_ * heads * s.h + (tensor.of_keys ? 0 : first_ * s.s);
    const std::int64_t span = (heads - 1) * s.h + (rows - 1) * s.s + (features - 1) * s.d + 1;
    const std::int64_t size = dtype_size(spec.dtype);
    void* const data = memory_.fetch(static_cast<const std::byte*>(bound.data) + first * size,
                                     static_cast<std::size_t>(span * size));
    const bool is_output = tensor.output && (i >= 4) == (problem_.direction == Direction::Backward);
    if (!is_output) {
      bound.data = data;
      continue;
    }
    const auto bytes = static_cast<std::size_t>(heads * rows * features) * sizeof(double);
    Output& output =
        outputs_.emplace_back(Output{tensor.name, data, spec.dtype, DType::F64, s, heads, rows,
                                     features, std::vector<std::byte>(bytes)});
    spec = {DType::F64, std::nullopt};
    bound = {output.wanted.data(), {0, rows * features, features, 1}};
  }
}

// Rows of the sampled heads, which lie rows_all_ apart, next to each other.
void* Sample::compact_rows(const void* all) {
  if (all == nullptr) return nullptr;
  const auto size = static_cast<std::size_t>(dtype_size(row_type_));
  const std::int64_t head = ((packed() ? 0 : b_ * whole_.sizes.h) + g_ * group_) * rows_all_;
  const auto step = static_cast<std::size_t>(rows_all_) * size;
  const auto bytes = static_cast<std::size_t>(rows_) * size;
  const auto* from = static_cast<const std::byte*>(
      memory_.fetch(static_cast<const std::byte*>(all) + static_cast<std::size_t>(head) * size,
                    static_cast<std::size_t>(group_) * step));
  std::byte* const out = keep(static_cast<std::size_t>(group_) * bytes);
  for (std::size_t h = 0; h < static_cast<std::size_t>(group_); ++h) {
    std::memcpy(out + h * bytes, from + h * step + static_cast<std::size_t>(first_) * size, bytes);
  }
  return out;
}

void* Sample::output_rows(const char* name, void* all) {
  if (all == nullptr) return nullptr;
  const auto bytes = static_cast<std::size_t>(group_ * rows_ * dtype_size(row_type_));
  Output& output = outputs_.emplace_back(Output{name, compact_rows(all), row_type_, row_type_,
                                                Strides{0, rows_, 1, 1}, group_, rows_, 1,
                                                std::vector<std::byte>(bytes)});
  return output.wanted.data();
}

void Sample::bind_rows() {
  row_type_ = problem_.q.dtype == DType::F64 ? DType::F64 : DType::F32;
  const bool forward = problem_.direction == Direction::Forward;
  part_.lse =
      forward ? problem_.lse ? output_rows("lse", whole_.lse) : nullptr : compact_rows(whole_.lse);
  part_.grad_lse = problem_.grad_lse ? compact_rows(whole_.grad_lse) : nullptr;
  part_.row_max = problem_.row_max ? output_rows("row_max", whole_.row_max) : nullptr;
  const std::int64_t size = dtype_size(row_type_);
  if (problem_.sink) {
    part_.sink = memory_.fetch(static_cast<const std::byte*>(whole_.sink) + g_ * group_ * size,
                               static_cast<std::size_t>(group_ * size));
  }
}

void Sample::bind_sequences() {
  const std::int64_t b = packed() ? 0 : b_, count = part_.sizes.b;
  const auto moved = [&](const std::int32_t* from, std::int32_t shift, bool is_length) {
    std::int32_t* const fetched = numbers(from, b, count);
    if (fetched == nullptr || shift == 0) return fetched;
    auto* const out = reinterpret_cast<std::int32_t*>(keep(sizeof(std::int32_t)));
    *out = is_length ? std::clamp(*fetched - shift, 0, static_cast<std::int32_t>(rows_))
                     : *fetched + shift;
    return out;
  };
  const auto first = static_cast<std::int32_t>(first_);
  part_.q_lengths = moved(whole_.q_lengths, first, true);
  part_.k_lengths = moved(whole_.k_lengths, 0, true);
  part_.q_offsets = moved(whole_.q_offsets, first, false);
  part_.k_offsets = moved(whole_.k_offsets, 0, false);
  part_.q_starts = numbers(whole_.q_starts, 0, count + 1);
  part_.k_starts = numbers(whole_.k_starts, 0, count + 1);
}

void Sample::bind_values() {
  fetch(part_.dropout);
#define FOVEA_VALUE(type, name) fetch(part_.name);
#include "fovea/fields.def"
  part_.b_offset.value += static_cast<std::int32_t>(b_);
  part_.h_offset.value += static_cast<std::int32_t>(g_ * group_);
  part_.q_offset.value += static_cast<std::int32_t>(first_);
  tensors_.assign(whole_.tensors.begin(), whole_.tensors.end());
  for (ir::TensorView& view : tensors_) {
    const auto rank = static_cast<std::size_t>(view.rank);
    const std::uintptr_t bytes =
        bytes_of({view.extent.data(), rank}, {view.stride.data(), rank}, dtype_size(view.dtype));
    view.data = bytes > 0 ? memory_.fetch(view.data, bytes) : nullptr;
  }
  scalars_.assign(whole_.scalars.begin(), whole_.scalars.end());
  for (std::size_t slot = 0; slot < scalars_.size(); ++slot) {
    if (scalars_[slot].device == nullptr) continue;
    const void* const here = memory_.fetch(scalars_[slot].device, sizeof(std::int32_t));
    const PerCall<ir::ScalarValue> on_host{{}, static_cast<const ir::ScalarValue*>(here)};
    scalars_[slot] = {scalar_value(on_host, problem_.program.scalars()[slot].type), nullptr};
  }
  part_.tensors = tensors_;
  part_.scalars = scalars_;
}

std::string Sample::compare(const Output& output) {
  Comparison comparison;
  std::int64_t at = 0;
  for (std::int64_t h = 0; h < output.heads; ++h) {
    for (std::int64_t row = 0; row < output.rows; ++row) {
      for (std::int64_t d = 0; d < output.features; ++d) {
        const Strides& s = output.strides;
        comparison.add(read_number(output.got, output.dtype, h * s.h + row * s.s + d * s.d),
                       read_number(output.wanted.data(), output.wanted_dtype, at++));
      }
    }
  }
  return comparison.verdict(output.name, limit_of(output.dtype));
}

bool has_negative_strides(const Bindings& b) {
  for (const BoundTensor& tensor : {b.q, b.k, b.v, b.o, b.grad_o, b.grad_q, b.grad_k, b.grad_v}) {
    if (std::ranges::min(tensor.strides.list()) < 0) return true;
  }
  return false;
}

bool can_be_sampled(const FinishedCall& call) {
  const Problem& p = call.problem;
  const Sizes& s = call.bindings.sizes;
  const bool is_packed = p.layout == Layout::Thd;
  if (std::min({s.b, s.h, s.hkv, s.d, s.dv, is_packed ? s.t_q : s.sq, is_packed ? s.t_k : s.skv}) ==
      0) {
    return false;
  }
  if (p.dropout > 0 && p.rng == Rng::Engine) return false;
  if (!is_packed && s.b > 1 && uses(p.program, ir::Op::SizeB)) return false;
  if (s.hkv > 1 && uses(p.program, ir::Op::SizeHkv)) return false;
  return !has_negative_strides(call.bindings);
}

}  // namespace

std::string differences(Planner& planner, const FinishedCall& call) {
  return can_be_sampled(call) ? Sample(call).run_and_compare(planner) : "";
}

}  // namespace fovea

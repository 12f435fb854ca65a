#include "engines/cudnn/call.h"

#include <algorithm>
#include <bit>

#include "attention/extents.h"
#include "attention/refuse.h"
#include "base/error.h"
#include "cuda/driver.h"

namespace fovea::cudnn {

std::size_t element_bytes(Type type) {
  switch (type) {
    case Type::F16:
    case Type::BF16: return 2;
    case Type::I64: return 8;
    case Type::Bool: return 1;
    case Type::F32:
    case Type::I32: return 4;
  }
  throw InternalError("a type without a size");
}

const BoundTensor* bound_tensor(const Bindings& b, TensorRole role) {
  switch (role) {
    case TensorRole::Q: return &b.q;
    case TensorRole::K: return &b.k;
    case TensorRole::V: return &b.v;
    case TensorRole::O: return &b.o;
    case TensorRole::GradO: return &b.grad_o;
    case TensorRole::GradQ: return &b.grad_q;
    case TensorRole::GradK: return &b.grad_k;
    case TensorRole::GradV: return &b.grad_v;
    default: return nullptr;
  }
}

bool CudnnCall::is_value(TensorRole role) {
  return role == TensorRole::Scale || role == TensorRole::OffsetH || role == TensorRole::OffsetQ ||
         role == TensorRole::OffsetK || role == TensorRole::Scalar;
}

CudnnCall::OneValue CudnnCall::value_of(const GraphTensor& tensor) const {
  const auto whole = [](const PerCall<std::int32_t>& bound, std::size_t place) {
    return OneValue{static_cast<std::uint32_t>(bound.value), bound.device, place};
  };
  switch (tensor.role) {
    case TensorRole::Scale:
      return {std::bit_cast<std::uint32_t>(b_.scale.value), b_.scale.device, 0};
    case TensorRole::OffsetH: return whole(b_.h_offset, 1);
    case TensorRole::OffsetQ: return whole(b_.q_offset, 2);
    case TensorRole::OffsetK: return whole(b_.k_offset, 3);
    case TensorRole::Scalar: {
      const bool declared = tensor.slot < b_.scalars.size();
      return {scalar_bits(tensor.slot), declared ? b_.scalars[tensor.slot].device : nullptr,
              std::size_t{4} + tensor.slot};
    }
    default: throw InternalError("a tensor that is no value");
  }
}

void CudnnCall::start_slice(std::int64_t first) {
  first_ = first;
  value_count_ = 0;
}

void* CudnnCall::in_workspace(std::size_t at) const {
  return static_cast<std::byte*>(b_.workspace) + at;
}

void* CudnnCall::of_batch(const BoundTensor& tensor, std::size_t scratch) const {
  if (scratch != CallMemory::none) return in_workspace(scratch);
  return static_cast<std::byte*>(tensor.data) + first_ * tensor.strides.b * 2;  // f16 or bf16
}

void* CudnnCall::value(std::uint32_t bits) {
  values_[value_count_] = bits;
  return &values_[value_count_++];
}

std::uint32_t CudnnCall::scalar_bits(std::uint32_t slot) const {
  if (slot >= b_.scalars.size()) {
    return std::bit_cast<std::uint32_t>(b_.literals[slot - b_.scalars.size()]);
  }
  const ir::ScalarValue& bound = b_.scalars[slot].value;
  return baked_.program.scalars()[slot].type == ir::Type::I32
             ? static_cast<std::uint32_t>(bound.i)
             : std::bit_cast<std::uint32_t>(bound.f);
}

std::span<const ir::ScalarValue> CudnnCall::all_scalars() {
  if (scalars_.size() == 0) {
    const std::size_t count = b_.scalars.size() + b_.literals.size();
    for (std::size_t slot = 0; slot < count; ++slot) {
      const std::uint32_t bits = scalar_bits(static_cast<std::uint32_t>(slot));
      scalars_.push_back({std::bit_cast<float>(bits), static_cast<std::int32_t>(bits)});
    }
  }
  return scalars_.span();
}

void* CudnnCall::uniform(const CompiledUniform& uniform, Type type) {
  ir::Point<double> point;
  const Sizes& s = baked_.sizes;
  point.B = static_cast<std::int32_t>(s.b);
  point.H = static_cast<std::int32_t>(heads_seen(s, baked_.h_global));
  point.Hkv = static_cast<std::int32_t>(s.hkv);
  point.Sq = static_cast<std::int32_t>(s.sq);
  point.Skv = static_cast<std::int32_t>(s.skv);
  point.scalars = all_scalars();
  InlineVector<ir::Cell<double>, most_uniform_steps> cells(uniform.formula.value_count());
  uniform.formula.run(point, {&cells[0], cells.size()});
  const ir::Cell<double>& result = uniform.formula.value(cells.span(), 0);
  if (type == Type::I32) return value(static_cast<std::uint32_t>(result.i));
  return value(
      std::bit_cast<std::uint32_t>(uniform.decides ? result.exact : static_cast<float>(result.f)));
}

void* CudnnCall::pointer(const GraphTensor& tensor) {
  if (is_value(tensor.role)) {
    const OneValue one = value_of(tensor);
    if (tensor.by_value) return value(one.bits);
    return one.device != nullptr
               ? const_cast<void*>(one.device)
               : in_workspace(memory_.values + one.place * CallMemory::value_bytes);
  }
  const auto rows = static_cast<std::size_t>(first_ * baked_.sizes.h * baked_.sizes.sq);
  const auto per_sequence = [&](const std::int32_t* given, std::size_t own) -> void* {
    const void* const start = given != nullptr ? given : in_workspace(own);
    return const_cast<std::int32_t*>(static_cast<const std::int32_t*>(start)) + first_;
  };
  const auto wide = [&](const PerCall<std::uint64_t>& value, std::size_t own) -> void* {
    return value.device != nullptr ? const_cast<std::uint64_t*>(value.device) : in_workspace(own);
  };
  switch (tensor.role) {
    case TensorRole::Q: return of_batch(b_.q, CallMemory::none);
    case TensorRole::K: return of_batch(b_.k, CallMemory::none);
    case TensorRole::V: return of_batch(b_.v, CallMemory::none);
    case TensorRole::O: return of_batch(b_.o, CallMemory::none);
    case TensorRole::GradO: return of_batch(b_.grad_o, CallMemory::none);
    case TensorRole::GradQ: return of_batch(b_.grad_q, memory_.grad_q);
    case TensorRole::GradK: return of_batch(b_.grad_k, memory_.grad_k);
    case TensorRole::GradV: return of_batch(b_.grad_v, memory_.grad_v);
    case TensorRole::Stats: return static_cast<float*>(b_.lse) + rows;
    case TensorRole::Sink: return const_cast<void*>(b_.sink);
    case TensorRole::GradSink: return b_.grad_sink;
    case TensorRole::LengthsQ: return per_sequence(b_.q_lengths, memory_.q_lengths);
    case TensorRole::LengthsK: return per_sequence(b_.k_lengths, memory_.k_lengths);
    case TensorRole::OffsetsQ: return per_sequence(b_.q_offsets, CallMemory::none);
    case TensorRole::OffsetsK: return per_sequence(b_.k_offsets, CallMemory::none);
    case TensorRole::Seed: return wide(b_.seed, memory_.seed);
    case TensorRole::Offset: return wide(b_.offset, memory_.offset);
    case TensorRole::OffsetB:
      return value(
          static_cast<std::uint32_t>(b_.b_offset.value + static_cast<std::int32_t>(first_)));
    case TensorRole::Scale:
    case TensorRole::OffsetH:
    case TensorRole::OffsetQ:
    case TensorRole::OffsetK:
    case TensorRole::Scalar:
    case TensorRole::Captured:
    case TensorRole::Bias:
    case TensorRole::GradBias:
    case TensorRole::Uniform:
    case TensorRole::Table:
    case TensorRole::Starts: break;
  }
  throw InternalError("a tensor that is bound elsewhere");
}

// The value of index `i` of a load by `view`, at position (first_, 0, 0, 0).
std::int64_t CudnnCall::first_index(const View& view, std::size_t i) const {
  if (view.axis[i] < 0) return view.constant[i];
  const std::array<std::int64_t, 4> start{b_.b_offset.value + first_, b_.h_offset.value,
                                          b_.q_offset.value, b_.k_offset.value};
  return start[static_cast<std::size_t>(view.axis[i])];
}

void CudnnCall::refuse_captured(const View& view, const std::string& rule) const {
  refuse("tensor", baked_.program.tensors()[view.slot].name, rule);
}

// The graph has its strides baked in and knows no extents, so they are checked here.
void CudnnCall::check_view(const View& view, std::size_t i, std::int64_t stride,
                           bool gradient) const {
  const std::int64_t extent = b_.tensors[view.slot].extent[i];
  const std::string index = std::to_string(i);
  if (stride != view.stride[i] && extent > 1) {
    refuse_captured(view,
                    "its stride " + index + " is " + std::to_string(stride) +
                        ", but this plan was made for " + std::to_string(view.stride[i]) +
                        (gradient ? ": engine cudnn writes gradients of captured tensors densely"
                                  : ": engine cudnn bakes strides; say them in tensor_strides of "
                                    "the problem, or make it contiguous"));
  }
  const std::int64_t end = first_index(view, i) + view.length[i];
  if (end > extent) {
    refuse_captured(view, "its extent " + index + " is " + std::to_string(extent) +
                              ", but with its offset this call loads up to " + std::to_string(end) +
                              ": engine cudnn does not clamp; make the tensor as large");
  }
}

// The element that position (first_, 0, 0, 0) of this call loads.
void* CudnnCall::captured(const GraphTensor& tensor, const View& view) const {
  const bool gradient = tensor.role == TensorRole::GradBias;
  if (gradient && b_.tensor_gradients[view.slot].dtype != baked_.q.dtype) {
    refuse_captured(view, "its gradient is bound as " +
                              std::string(dtype_name(b_.tensor_gradients[view.slot].dtype)) +
                              ": cuDNN writes the gradient of a bias in the type of q, " +
                              std::string(dtype_name(baked_.q.dtype)));
  }
  const auto& strides =
      gradient ? b_.tensor_gradients[view.slot].stride : b_.tensors[view.slot].stride;
  std::int64_t at = 0;
  for (std::size_t i = 0; i < view.axis.size(); ++i) {
    check_view(view, i, strides[i], gradient);
    at += first_index(view, i) * strides[i];
  }
  const std::int64_t bytes = at * static_cast<std::int64_t>(element_bytes(tensor.type));
  void* const data = gradient ? b_.tensor_gradients[view.slot].data
                              : const_cast<void*>(b_.tensors[view.slot].data);
  std::byte* const start = static_cast<std::byte*>(data) + bytes;
  if (reinterpret_cast<std::uintptr_t>(start) % static_cast<std::uintptr_t>(view.alignment) != 0) {
    refuse_captured(view, "the first element that this call loads does not lie at a multiple of " +
                              std::to_string(view.alignment) +
                              " bytes, but cuDNN loads so many at once, by its strides; make "
                              "a contiguous tensor of what the formula loads");
  }
  return start;
}

namespace {

template <class T>
void refuse_device_value(const char* name, const PerCall<T>& value) {
  if (value.device == nullptr) return;
  refuse(name, "a device pointer",
         "this plan takes it from the host, when the call is enqueued; a problem with "
         "values=device takes it from either");
}

void check_strides(const GraphTensor& tensor, const BoundTensor& bound) {
  if (bound.data == nullptr) return;
  const Dims given = bound.strides.list();
  for (std::size_t i = 0; i < 4; ++i) {
    if (given[i] == tensor.stride[i] || tensor.dim[i] == 1) continue;
    if (i == 0 && tensor.starts) continue;  // packed: there is no batch to step through
    refuse("strides", given[i],
           "differ from those that this plan was made for (" + std::to_string(tensor.stride[i]) +
               "): engine cudnn bakes strides; make a problem with these");
  }
  if (reinterpret_cast<std::uintptr_t>(bound.data) % 16 != 0) {
    refuse("data", reinterpret_cast<std::uintptr_t>(bound.data),
           "cuDNN wants q, k, v, o and their gradients at multiples of 16 bytes");
  }
}

}  // namespace

void check_call(const Problem& baked, const Lowered& lowered, const Bindings& b) {
  Sizes sizes = b.sizes;
  sizes.t_q = baked.sizes.t_q;  // rows of packed tensors are not baked
  sizes.t_k = baked.sizes.t_k;
  if (!(sizes == baked.sizes)) {
    refuse("sizes", b.sizes.b,
           "differ from those that this plan was made for: engine cudnn bakes sizes; make a "
           "problem with these (graphs are shared where only the batch differs)");
  }
  for (const GraphTensor& tensor : lowered.spec.tensors) {
    if (const BoundTensor* bound = bound_tensor(b, tensor.role)) check_strides(tensor, *bound);
  }
  if (b.b_offset.device != nullptr) {
    refuse("b_offset", "a device pointer", "engine cudnn takes it from the host");
  }
  if (!baked.device_values) {
    refuse_device_value("scale", b.scale);
    refuse_device_value("h_offset", b.h_offset);
    refuse_device_value("q_offset", b.q_offset);
    refuse_device_value("k_offset", b.k_offset);
    for (const PerCall<ir::ScalarValue>& scalar : b.scalars) refuse_device_value("scalar", scalar);
  }
  const bool formulas = baked.program.mod() || baked.program.mask();
  const auto fixed = [&](const char* name, const PerCall<std::int32_t>& bound,
                         std::int32_t allowed) {
    const bool moves = bound.device != nullptr || bound.value != 0;
    if (!formulas || !moves || allowed != 0) return;
    refuse(
        name, bound.device != nullptr ? "a device pointer" : std::to_string(bound.value),
        "this plan was made for 0: engine cudnn adds offsets only where the problem has one that "
        "is not 0 (any value will do; other values are then bound without a new plan)");
  };
  if (lowered.computes_with_b) fixed("b_offset", b.b_offset, baked.b_offset);
  fixed("h_offset", b.h_offset, baked.h_offset);
  fixed("q_offset", b.q_offset, baked.q_offset);
  fixed("k_offset", b.k_offset, baked.k_offset);
}

namespace {

std::size_t span_bytes(const GraphTensor& tensor) {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < 4; ++i) last += (tensor.dim[i] - 1) * tensor.stride[i];
  return static_cast<std::size_t>(last + 1) * element_bytes(tensor.type);
}

}  // namespace

CallMemory::CallMemory(const Problem& baked, const GraphSpec& spec) {
  const auto lengths = static_cast<std::size_t>(baked.sizes.b) * 4;
  const bool padded = spec.padding && !spec.packed();  // PackedCall has its own
  if (padded && !baked.has_q_lengths) q_lengths = take(lengths);
  if (padded && !baked.has_k_lengths) k_lengths = take(lengths);
  if (spec.dropout > 0) {
    seed = take(8);
    offset = take(8);
  }
  if (baked.device_values)
    values = take(CallMemory::value_bytes * (4 + baked.program.scalars().size()));
  if (!spec.backward || spec.packed()) return;
  // The scratch is as large as one slice's: slices run one after the other.
  if (!baked.want_q) grad_q = take(span_bytes(*spec.find(TensorRole::GradQ)));
  if (!baked.want_k) grad_k = take(span_bytes(*spec.find(TensorRole::GradK)));
  if (!baked.want_v) grad_v = take(span_bytes(*spec.find(TensorRole::GradV)));
}

std::size_t CallMemory::take(std::size_t bytes) {
  const std::size_t at = bytes_;
  bytes_ += (bytes + 255) / 256 * 256;
  return at;
}

void CudnnCall::fill_workspace(const GraphSpec& spec) {
  const cuda::Driver& d = *cuda::driver();
  const auto fill = [&](std::size_t at, std::uint32_t word, std::size_t count) {
    if (at == CallMemory::none) return;
    cuda::check(d.set_words_async(reinterpret_cast<cuda::Address>(in_workspace(at)), word, count,
                                  b_.stream),
                "cuMemsetD32Async");
  };
  const auto fill_wide = [&](std::size_t at, const PerCall<std::uint64_t>& value) {
    if (at == CallMemory::none || value.device != nullptr) return;
    fill(at, static_cast<std::uint32_t>(value.value), 1);
    fill(at + 4, static_cast<std::uint32_t>(value.value >> 32), 1);
  };
  const auto count = static_cast<std::size_t>(baked_.sizes.b);
  fill(memory_.q_lengths, static_cast<std::uint32_t>(baked_.sizes.sq), count);
  fill(memory_.k_lengths, static_cast<std::uint32_t>(baked_.sizes.skv), count);
  if (spec.dropout > 0) {
    fill_wide(memory_.seed, b_.seed);
    fill_wide(memory_.offset, b_.offset);
  }
  if (!baked_.device_values) return;
  for (const GraphTensor& tensor : spec.tensors) {
    if (tensor.by_value || !is_value(tensor.role)) continue;
    const OneValue value = value_of(tensor);
    if (value.device == nullptr)
      fill(memory_.values + value.place * CallMemory::value_bytes, value.bits, 1);
  }
}

void CudnnCall::clear(const BoundTensor& tensor, const GraphTensor& shape) {
  if (tensor.data == nullptr) return;
  const cuda::Driver& d = *cuda::driver();
  const Sizes& s = baked_.sizes;
  const auto at = reinterpret_cast<cuda::Address>(tensor.data);
  const auto heads = shape.dim[1], rows = shape.dim[2], features = shape.dim[3];
  const auto all = static_cast<std::size_t>(s.b * heads * rows * features) * 2;
  GraphTensor whole = shape;
  whole.dim[0] = s.b;
  if (span_bytes(whole) == all) {
    cuda::check(d.set_bytes_async(at, 0, all, b_.stream), "cuMemsetD8Async");
    return;
  }
  for (std::int64_t b = 0; b < s.b; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const auto start =
          static_cast<cuda::Address>(2 * (b * shape.stride[0] + h * shape.stride[1]));
      cuda::check(d.set_rows_async(at + start, static_cast<std::size_t>(2 * shape.stride[2]), 0,
                                   static_cast<std::size_t>(2 * features),
                                   static_cast<std::size_t>(rows), b_.stream),
                  "cuMemsetD2D8Async");
    }
  }
}

void CudnnCall::clear_bias_gradient(const Lowered& lowered) {
  const GraphTensor* const gradient = lowered.spec.find(TensorRole::GradBias);
  if (gradient == nullptr) return;
  const View& view = lowered.views[1];  // [0] is the view of the bias itself
  if (!view.partial && !lowered.spec.padding) return;
  captured(*gradient, view);  // which says whether it is dense
  std::size_t bytes = element_bytes(gradient->type);
  for (std::size_t i = 0; i < view.axis.size(); ++i) {
    bytes *= static_cast<std::size_t>(b_.tensors[view.slot].extent[i]);
  }
  const auto at = reinterpret_cast<cuda::Address>(b_.tensor_gradients[view.slot].data);
  cuda::check(cuda::driver()->set_bytes_async(at, 0, bytes, b_.stream), "cuMemsetD8Async");
}

void CudnnCall::clear_outputs(const Lowered& lowered) {
  clear_bias_gradient(lowered);
  const GraphSpec& spec = lowered.spec;
  if (!spec.padding) return;
  for (const GraphTensor& tensor : spec.tensors) {
    const bool output = spec.backward ? tensor.role == TensorRole::GradQ ||
                                            tensor.role == TensorRole::GradK ||
                                            tensor.role == TensorRole::GradV
                                      : tensor.role == TensorRole::O;
    if (output) clear(*bound_tensor(b_, tensor.role), tensor);
  }
  if (!spec.stats) return;
  const Sizes& s = baked_.sizes;
  constexpr std::uint32_t minus_infinity = 0xff800000;
  cuda::check(
      cuda::driver()->set_words_async(reinterpret_cast<cuda::Address>(b_.lse), minus_infinity,
                                      static_cast<std::size_t>(s.b * s.h * s.sq), b_.stream),
      "cuMemsetD32Async");
}

}  // namespace fovea::cudnn

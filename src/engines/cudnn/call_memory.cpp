// The front part of a call's workspace, and what is enqueued before a graph runs: numbers that it
// reads there, outputs that it leaves alone.
#include "cuda/driver.h"
#include "engines/cudnn/call.h"

namespace fovea::cudnn {
namespace {

std::size_t span_bytes(const Tensor& tensor) {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < 4; ++i) last += (tensor.dim[i] - 1) * tensor.stride[i];
  return static_cast<std::size_t>(last + 1) * element_bytes(tensor.type);
}

}  // namespace

CallMemory::CallMemory(const Problem& baked, const Spec& spec) {
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
  if (!baked.want_q) grad_q = take(span_bytes(*spec.find(Role::GradQ)));
  if (!baked.want_k) grad_k = take(span_bytes(*spec.find(Role::GradK)));
  if (!baked.want_v) grad_v = take(span_bytes(*spec.find(Role::GradV)));
}

std::size_t CallMemory::take(std::size_t bytes) {
  const std::size_t at = bytes_;
  bytes_ += (bytes + 255) / 256 * 256;
  return at;
}

void CudnnCall::fill_workspace(const Spec& spec) {
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
  for (const Tensor& tensor : spec.tensors) {
    if (tensor.by_value || !is_value(tensor.role)) continue;
    const OneValue value = value_of(tensor);
    if (value.device == nullptr)
      fill(memory_.values + value.place * CallMemory::value_bytes, value.bits, 1);
  }
}

void CudnnCall::clear(const BoundTensor& tensor, const Tensor& shape) {
  if (tensor.data == nullptr) return;
  const cuda::Driver& d = *cuda::driver();
  const Sizes& s = baked_.sizes;
  const auto at = reinterpret_cast<cuda::Address>(tensor.data);
  const auto heads = shape.dim[1], rows = shape.dim[2], features = shape.dim[3];
  const auto all = static_cast<std::size_t>(s.b * heads * rows * features) * 2;
  Tensor whole = shape;
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
  const Tensor* const gradient = lowered.spec.find(Role::GradBias);
  if (gradient == nullptr) return;
  const View& view = lowered.views[1];  // after that of the bias itself
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
  const Spec& spec = lowered.spec;
  if (!spec.padding) return;
  for (const Tensor& tensor : spec.tensors) {
    const bool output = spec.backward ? tensor.role == Role::GradQ || tensor.role == Role::GradK ||
                                            tensor.role == Role::GradV
                                      : tensor.role == Role::O;
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

#include "engines/jit/captured_launches.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "cuda/kernels.h"

namespace fovea::jit {
namespace {

using device::GradientType;
using device::SumsKept;

GradientType gradient_type(DType dtype) {
  switch (dtype) {
    case DType::F32: return GradientType::F32;
    case DType::F16: return GradientType::F16;
    case DType::BF16: return GradientType::BF16;
    case DType::F64: return GradientType::F64;
    case DType::I32:
    case DType::I64:
    case DType::U8:
    case DType::Bool: break;
  }
  throw InternalError("a gradient of type " + std::string(dtype_name(dtype)));
}

// The gradient's indices in the order of its sums; neighbours that lie dense become one.
void set_indices(device::GradientWrite& call, const WantedGradient& target,
                 const ir::TensorView& view, const BoundGradient& gradient) {
  call.rank = 0;
  call.count = 1;
  for (const int index : target.order) {
    const auto i = static_cast<std::size_t>(index);
    const long long extent = view.extent[i], stride = gradient.stride[i];
    call.count *= extent;
    if (extent == 1) continue;
    if (call.rank > 0 && call.stride[call.rank - 1] == stride * extent) {
      call.extent[call.rank - 1] *= extent;
      call.stride[call.rank - 1] = stride;
      continue;
    }
    call.extent[call.rank] = extent;
    call.stride[call.rank] = stride;
    ++call.rank;
  }
  if (call.rank > 0) return;
  call.rank = 1;
  call.extent[0] = call.stride[0] = 1;
}

}  // namespace

std::int64_t bytes_of_sum(SumsKept kept) {
  switch (kept) {
    case SumsKept::Nowhere: return 0;
    case SumsKept::F32: return 4;
    case SumsKept::F64: return 8;
    case SumsKept::Exact: return 8 * device::exact_words;
  }
  return 0;
}

std::int64_t sum_bytes(const PreparedPlan& prepared, const WantedGradient& target,
                       const Sizes& sizes) {
  const std::int64_t elements =
      target.is_tensor ? declared_elements(prepared.baked, sizes, target.slot) : 1;
  return (elements * bytes_of_sum(target.kept) + 15) / 16 * 16;
}

std::int64_t captured_sum_bytes(const PreparedPlan& prepared, const Sizes& sizes) {
  std::int64_t bytes = 0;
  for (const WantedGradient& target : prepared.captured.targets()) {
    bytes += sum_bytes(prepared, target, sizes);
  }
  return bytes;
}

namespace {

device::GradientWrite call_of(const WantedGradient& target, const std::byte* sums,
                              const Bindings& bindings) {
  device::GradientWrite call{};
  call.kept = target.kept;
  if (target.kept != SumsKept::Nowhere) call.sums = sums;
  if (target.is_tensor) {
    const BoundGradient& gradient = bindings.tensor_gradients[target.slot];
    call.gradient = gradient.data;
    call.type = gradient_type(gradient.dtype);
    set_indices(call, target, bindings.tensors[target.slot], gradient);
  } else {
    call.gradient = bindings.scalar_gradients[target.slot];
    call.rank = 1;
    call.extent[0] = call.stride[0] = call.count = 1;
  }
  return call;
}

// So many blocks of captured_threads that each thread has `each` of `count`.
Grid grid_for(std::int64_t count, std::int64_t each) {
  const std::int64_t step = each * device::captured_threads;
  return {static_cast<unsigned>((count + step - 1) / step), 1, 1, device::captured_threads};
}

std::int64_t threads_of(const PreparedKernel& kernel, const device::CallArguments& call) {
  const Grid grid = kernel.row->grid(call, kernel.shape);
  return std::int64_t{grid.x} * grid.threads;
}

}  // namespace

CapturedLaunches::CapturedLaunches(const PreparedPlan& prepared, const Bindings& bindings,
                                   Arguments& arguments)
    : prepared_(prepared),
      bindings_(bindings),
      sums_(static_cast<std::byte*>(arguments.call.captured_sums)) {
  device::CallArguments& call = arguments.call;
  if (prepared.captured.targets().empty()) return;
  pieces_ = captured_sum_bytes(prepared, bindings.sizes) / 16;
  // The first kernel of a backward, backward_delta.h, clears them if it has a thread for each
  // piece.
  if (pieces_ <= threads_of(prepared.kernels.front(), call)) {
    call.captured_pieces = std::exchange(pieces_, 0);
  }
  writes_ = !is_written_beside(call);
  auto* to = reinterpret_cast<std::byte*>(arguments.words + prepared.captured_words.first);
  if (prepared.captured_words.count == 0) return;
  for_each_call([&](device::GradientWrite one) {
    if (writes_) one.count = 0;
    std::memcpy(to, &one, sizeof one);
    to += sizeof one;
  });
}

template <class Visit>
void CapturedLaunches::for_each_call(const Visit& visit) const {
  std::int64_t offset = 0;
  for (const WantedGradient& target : prepared_.captured.targets()) {
    visit(call_of(target, sums_ + offset, bindings_));
    offset += sum_bytes(prepared_, target, bindings_.sizes);
  }
}

bool CapturedLaunches::is_written_beside(const device::CallArguments& call) const {
  const auto writer = std::ranges::find_if(
      prepared_.kernels, [](const PreparedKernel& kernel) { return kernel.row->writes_captured; });
  if (prepared_.captured_words.count == 0 || writer == prepared_.kernels.end()) return false;
  std::int64_t elements = 0;
  for_each_call([&](const device::GradientWrite& one) { elements += one.count; });
  return elements <= threads_of(*writer, call);
}

void launch_clear(cuda::Handle kernel, const device::ClearArguments& call,
                  const PreparedPlan& prepared, void* stream) {
  if (call.pieces == 0) return;
  // Four to a thread, and more if a million blocks are not enough.
  constexpr std::int64_t each = 4, most = each * device::captured_threads << 20;
  cuda::launch(kernel, grid_for(std::min<std::int64_t>(call.pieces, most), each), &call, stream, 0,
               prepared.overlaps);
}

void CapturedLaunches::clear(cuda::Handle kernel) const {
  launch_clear(kernel, {sums_, pieces_}, prepared_, bindings_.stream);
}

void CapturedLaunches::write(cuda::Handle kernel) const {
  if (!writes_) return;
  for_each_call([&](const device::GradientWrite& call) {
    if (call.count == 0) return;
    cuda::launch(kernel, grid_for(call.count, device::captured_elements), &call, bindings_.stream,
                 0, prepared_.overlaps);
  });
}

}  // namespace fovea::jit

#include "engines/jit/captured_run.h"

#include <algorithm>

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
void set_indices(device::CapturedCall& call, const CapturedTarget& target,
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

std::int64_t sum_bytes(const Prepared& prepared, const CapturedTarget& target, const Sizes& sizes) {
  const std::int64_t elements =
      target.is_tensor ? declared_elements(prepared.baked, sizes, target.slot) : 1;
  return (elements * bytes_of_sum(target.kept) + 15) / 16 * 16;
}

std::int64_t captured_sum_bytes(const Prepared& prepared, const Sizes& sizes) {
  std::int64_t bytes = 0;
  for (const CapturedTarget& target : prepared.captured.targets()) {
    bytes += sum_bytes(prepared, target, sizes);
  }
  return bytes;
}

void clear_captured(const Prepared& prepared, const Memory& memory, const Bindings& bindings,
                    cuda::Handle kernel) {
  const device::ClearCall call{memory.captured, captured_sum_bytes(prepared, bindings.sizes) / 16};
  if (call.words == 0) return;
  constexpr std::int64_t step = 4 * device::captured_threads;  // four words to a thread
  const std::int64_t blocks = (call.words + step - 1) / step;
  constexpr std::int64_t most = 1 << 20;  // a thread clears further words where there are more
  cuda::launch(kernel,
               {static_cast<unsigned>(std::min(blocks, most)), 1, 1, device::captured_threads},
               &call, bindings.stream);
}

void write_captured(const Prepared& prepared, const Memory& memory, const Bindings& bindings,
                    cuda::Handle kernel) {
  std::int64_t offset = 0;
  for (const CapturedTarget& target : prepared.captured.targets()) {
    device::CapturedCall call{};
    call.kept = target.kept;
    if (target.kept != SumsKept::Nowhere) call.sums = memory.captured + offset;
    offset += sum_bytes(prepared, target, bindings.sizes);
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
    if (call.count == 0) continue;
    constexpr std::int64_t step = device::captured_threads * device::captured_elements;
    cuda::launch(
        kernel,
        {static_cast<unsigned>((call.count + step - 1) / step), 1, 1, device::captured_threads},
        &call, bindings.stream);
  }
}

}  // namespace fovea::jit

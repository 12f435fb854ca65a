// Bindings: everything of one call: pointers, and the values that a plan did not bake. Checked
// against the Problem by attention/validate before any plan sees them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "attention/problem.h"
#include "ir/eval.h"
#include "ir/tensor_view.h"

namespace fovea {

class Executor;  // attention/executor: who runs an engine's tasks on the host

// A value of this call: on the host, or where the device finds it when the call runs (CUDA graphs
// and traced programs need that).
template <class T>
struct PerCall {
  T value{};
  const T* device = nullptr;  // not null: read there
};

// One of the eight tensors over positions and features.
struct BoundTensor {
  void* data = nullptr;
  Strides strides;
};

// A captured tensor's gradient: written, never added to. Same extents as the tensor.
struct BoundGradient {
  void* data = nullptr;  // null: not wanted
  DType dtype = DType::F32;
  std::array<std::int64_t, ir::limits::rank> stride{};
};

struct Bindings {
  Sizes sizes;
  BoundTensor q, k, v, o, grad_o, grad_q, grad_k, grad_v;

  // Rows of (b, h, q): [B, H, Sq], or [H, T] under Thd; dense. f32 (f64 where q is f64).
  void* lse = nullptr;
  const void* grad_lse = nullptr;
  void* row_max = nullptr;
  void* max_logit = nullptr;   // [H]
  const void* sink = nullptr;  // [H]
  void* grad_sink = nullptr;   // [H]

  // Lengths [B] and, under Thd, cumulative starts [B + 1], in i32.
  const std::int32_t* q_lengths = nullptr;
  const std::int32_t* k_lengths = nullptr;
  const std::int32_t* q_starts = nullptr;
  const std::int32_t* k_starts = nullptr;
  const std::int32_t* q_offsets = nullptr;  // [B], instead of q_offset
  const std::int32_t* k_offsets = nullptr;

  // By slot of the Program. A scalar's device pointer is one f32 or i32, of its declared type.
  std::span<const ir::TensorView> tensors;
  std::span<const PerCall<ir::ScalarValue>> scalars;
  std::span<const BoundGradient> tensor_gradients;
  std::span<void* const> scalar_gradients;  // one f32 each (f64 where q is f64); null: not wanted
  std::span<const float> literals;          // that bake lifted out of the formulas

  PerCall<float> scale;
  PerCall<float> dropout;
  PerCall<std::uint64_t> seed, offset;
  PerCall<std::int32_t> b_offset, h_offset, q_offset, k_offset;
  std::int32_t h_global = 0;

  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  void* stream = nullptr;
  Executor* executor = nullptr;  // null: the engine's own
  int threads = 0;               // at most so many of the executor's; 0: all
};

}  // namespace fovea

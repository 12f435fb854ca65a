// Bindings: everything of one call: pointers, and the values that a plan did not bake. Checked
// against the Problem by attention/validate before any plan sees them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "attention/problem.h"
#include "ir/eval.h"
#include "ir/tensor_view.h"

namespace fovea {

// Who runs the tasks of an engine that works on the host: its own threads, the caller alone, or
// the host program's pool.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual int threads() const = 0;
  // Runs task(0) .. task(count - 1), each once, in any order, on any threads; returns when all are
  // done. No task may wait for another: they may run one after the other on the caller.
  virtual void run(std::size_t count, const std::function<void(std::size_t task)>& task) = 0;
  // One of what run() was given may do many of the engine's own, smaller tasks one after the other:
  // it is about to begin this one. For whoever measures them.
  virtual void begins(std::int64_t) {}
  // Nodes of memory (NUMA) that its threads are spread over, and that of the calling thread.
  virtual int nodes() const { return 1; }
  virtual int node_here() const { return 0; }
};

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
  PerCall<float> dropout;
  double scale_rest = 0;  // of f64 tensors: what scale, below, lacks of the double that was given
  std::int32_t h_global = 0;

  // Pointers are to dense memory; the list has their extents.
#define FOVEA_TENSOR(field, key, of_keys, of_values, output) BoundTensor field;
#define FOVEA_POINTER(type, name, extent, needed, written) type* name = nullptr;
#define FOVEA_VALUE(type, name) PerCall<type> name;
#include "fovea/fields.def"

  // By slot of the Program. A scalar's device pointer is one f32 or i32, of its declared type.
  std::span<const ir::TensorView> tensors;
  std::span<const PerCall<ir::ScalarValue>> scalars;
  std::span<const BoundGradient> tensor_gradients;
  std::span<void* const> scalar_gradients;  // one f32 each (f64 if q is f64); null: not wanted
  std::span<const float> literals;          // that bake lifted out of the formulas
  // Of a Tangent. A tensor without data has none, a scalar's is 0.
  std::span<const ir::TensorView> tensor_tangents;
  std::span<const PerCall<ir::ScalarValue>> scalar_tangents;

  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  void* stream = nullptr;
  Executor* executor = nullptr;  // null: the engine's own
  int threads = 0;               // at most so many of the executor's; 0: all
};

}  // namespace fovea

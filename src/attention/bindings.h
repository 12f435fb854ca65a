// Bindings: the pointers of one call, and the values that a plan did not bake. Checked against the
// Problem by attention/validate before any plan sees them. Also says, for engines on the host,
// which rows of the tensors belong to which sequence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "attention/problem.h"
#include "ir/eval.h"

namespace fovea {

// Who runs the tasks of an engine that works on the host: its own threads (attention/pool.h), or
// the host program's pool.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual int threads() const = 0;
  // Runs task(0) .. task(count - 1), each once, in any order, on any threads; returns when all are
  // done. No task may wait for another: they may run one after the other on the caller.
  virtual void run(std::size_t count, const std::function<void(std::size_t task)>& task) = 0;
  // A task of run() may do many smaller tasks of the engine one after the other; it calls this
  // before each of them, so that a benchmark can measure them.
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

template <class T>
T value_of(const PerCall<T>& x) {
  return x.device != nullptr ? *x.device : x.value;
}

// A scalar on the device is one number of its declared type, not a pair.
ir::ScalarValue scalar_value(const PerCall<ir::ScalarValue>& x, ir::Type type);

// One sequence. Position i of it is row first + i of the tensors; packed tensors have one row after
// the other and no batch, the others begin at 0 in each batch.
struct Sequence {
  std::int64_t b = 0;
  std::int64_t q_first = 0, k_first = 0;
  std::int64_t q_length = 0, k_length = 0;
  std::int32_t q_offset = 0, k_offset = 0;  // added to what formulas see
};

// The sequences of one call: packed or not, with lengths and offsets of their own or without.
class Geometry {
 public:
  Geometry(const Problem& baked, const Bindings& bindings) : baked_(baked), bindings_(bindings) {}

  Sequence sequence(std::int64_t b) const;

  // All rows that a tensor of queries or of keys has, in or out of sequences.
  std::int64_t batches() const { return packed() ? 1 : bindings_.sizes.b; }
  std::int64_t q_rows() const { return packed() ? bindings_.sizes.t_q : bindings_.sizes.sq; }
  std::int64_t k_rows() const { return packed() ? bindings_.sizes.t_k : bindings_.sizes.skv; }

  // Where lse, row_max and grad_lse have row `row` of the queries: [B, H, Sq], packed [H, T].
  std::int64_t row_number(std::int64_t b, std::int64_t h, std::int64_t row) const {
    return ((packed() ? 0 : b) * bindings_.sizes.h + h) * q_rows() + row;
  }

 private:
  bool packed() const { return baked_.layout == Layout::Thd; }

  const Problem& baked_;
  const Bindings& bindings_;
};

}  // namespace fovea

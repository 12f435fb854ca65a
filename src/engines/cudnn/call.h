// One call of a plan: the pointer of each tensor of a graph, and the values that the host passes to
// it. Allocates nothing.
#pragma once

#include <array>
#include <cstdint>

#include "attention/bindings.h"
#include "base/inline_vector.h"
#include "engines/cudnn/lower.h"
#include "ir/eval.h"

namespace fovea::cudnn {

std::size_t element_bytes(Type type);
// Which of the eight tensors over positions and features it is; null for others.
const BoundTensor* bound_tensor(const Bindings& bindings, TensorRole role);

inline constexpr std::size_t most_bound = 64;
inline constexpr std::size_t most_uniform_steps = 256;  // of one formula of scalars (see judge)

// The first part of a call's workspace: what cuDNN reads from the device, or writes, and the caller
// has not bound.
class CallMemory {
 public:
  CallMemory(const Problem& baked, const GraphSpec& spec);
  std::size_t bytes() const { return bytes_; }

  // Offsets; none if it is not needed.
  static constexpr std::size_t none = ~std::size_t{0};
  static constexpr std::size_t value_bytes = 16;   // of a number there: cuDNN may want it aligned
  std::size_t q_lengths = none, k_lengths = none;  // all sequences full
  std::size_t seed = none, offset = none;
  std::size_t values = none;  // of a problem with device_values: those that come from the host
  std::size_t grad_q = none, grad_k = none,
              grad_v = none;  // cuDNN writes these also if they are not wanted

 private:
  std::size_t take(std::size_t bytes);
  std::size_t bytes_ = 0;
};

// Throws InvalidArgument if the call differs in what the plan baked, or binds what it cannot take.
void check_call(const Problem& baked, const Lowered& lowered, const Bindings& bindings);

struct CompiledUniform {
  ir::Evaluator<double> formula;
  bool decides = false;  // see UniformFormula
};

class CudnnCall {
 public:
  CudnnCall(const Problem& baked, const Bindings& bindings, const CallMemory& memory)
      : baked_(baked), b_(bindings), memory_(memory) {}

  void fill_workspace(const GraphSpec& spec);  // enqueues what CallMemory needs
  // Writes the zeros that cuDNN does not write: rows and keys of sequences that have no keys or no
  // queries, and gradients of what no formula of this call loads.
  void clear_outputs(const Lowered& lowered);
  void start_slice(std::int64_t first);
  void* pointer(const GraphTensor& tensor);
  void* uniform(const CompiledUniform& uniform, Type type);
  void* captured(const GraphTensor& tensor, const View& view) const;

 private:
  std::int64_t first_index(const View& view, std::size_t i) const;
  void check_view(const View& view, std::size_t i, std::int64_t stride, bool gradient) const;
  [[noreturn]] void refuse_captured(const View& view, const std::string& rule) const;
  void clear(const BoundTensor& tensor, const GraphTensor& shape);
  void clear_bias_gradient(const Lowered& lowered);
  void* in_workspace(std::size_t at) const;
  void* of_batch(const BoundTensor& tensor, std::size_t scratch) const;
  void* value(std::uint32_t bits);
  std::uint32_t scalar_bits(std::uint32_t slot) const;
  std::span<const ir::ScalarValue> all_scalars();
  struct OneValue {
    std::uint32_t bits = 0;
    const void* device = nullptr;
    std::size_t place = 0;  // among the values of the workspace
  };
  OneValue value_of(const GraphTensor& tensor) const;
  static bool is_value(TensorRole role);

  const Problem& baked_;
  const Bindings& b_;
  const CallMemory& memory_;
  std::int64_t first_ = 0;
  std::array<std::uint32_t, most_bound> values_;  // the first value_count_ of them
  std::size_t value_count_ = 0;
  InlineVector<ir::ScalarValue, most_bound>
      scalars_;  // with literals; filled when a formula first needs them
};

}  // namespace fovea::cudnn

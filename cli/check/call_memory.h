// The memory and the bindings of one direction of a workload, on the host or on a GPU: inputs in
// place, outputs poisoned, guards around both. cli/call runs it; tests of streams and CUDA graphs
// run it themselves.
#pragma once

#include <map>

#include "cli/check/call.h"

namespace fovea::cli {

class CallMemory {
 public:
  // `before` has o and lse for a backward. `gpu` may be null: the host.
  CallMemory(const Workload& workload, bool backward, const Results& before, Gpu* gpu);
  CallMemory(const CallMemory&) = delete;
  CallMemory& operator=(const CallMemory&) = delete;

  void set_workspace(std::size_t bytes);
  void set_threads(Threads threads);
  const fovea_bindings& bindings() const { return bindings_; }
  fovea_bindings& bindings() { return bindings_; }

  void poison_outputs();
  // The data of a workload of the same shape, into the memory that is bound.
  void refill(const Workload& other);
  void fetch();  // from the GPU, after the last run
  std::vector<std::string> complaints() const;
  void collect(std::vector<NamedArray>& arrays, bool gradient) const;

 private:
  void* input(const std::string& name, const Placement& placement, const Array& values);
  void* output(const std::string& name, const Placement& placement);
  void bind_sequences();
  void bind_captured(std::size_t i);
  void bind_values();
  void bind_forward();
  void bind_backward(const Results& before);

  const Workload& workload_;
  Gpu* gpu_;
  std::map<std::string, Placed> inputs_, outputs_;
  std::vector<std::string> order_;  // of outputs
  Placed workspace_{Placement::dense("u8", {0})};
  std::vector<fovea_tensor_binding> tensors_;
  std::vector<fovea_scalar_binding> scalars_;
  fovea_bindings bindings_{};
};

}  // namespace fovea::cli

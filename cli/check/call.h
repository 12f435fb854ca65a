// Runs a workload on an engine: outputs are poisoned first, memory around every tensor is watched,
// and a backward gets the outputs of its own forward.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/check/workload.h"

namespace fovea::cli {

// Who runs the tasks of an engine on the host.
enum class Threads {
  Own,       // the engine's
  OneInTurn  // the caller alone, from the last task to the first: an order that no pool would take
};

struct CallOptions {
  std::string engine;  // empty: the planner's choice
  std::string device = "cpu";
  int repeat = 1;      // times that each direction is run
  double seconds = 0;  // or for this long, whichever is more
  Threads threads = Threads::Own;
};

// One direction on one engine.
struct Pass {
  bool ran = false;
  std::string engine;
  std::vector<double> seconds;  // of each run, sorted
  std::size_t workspace_bytes = 0;
  std::vector<std::string> complaints;  // "wrote outside dq", "left elements of o unwritten"
};

struct NamedArray {
  std::string name;  // o lse row_max max_logit dq dk dv d_sink d_<captured>
  Array array;
  bool gradient = false;
};

struct Results {
  std::vector<NamedArray> arrays;
  Pass forward, backward;
  const Array* find(const std::string& name) const;  // null: there is none
};

// Throws Error, with status FOVEA_UNSUPPORTED if no engine can or the named one refuses.
Results run_workload(const Workload& workload, const CallOptions& options);

// The forward alone.
Results run_forward(const Workload& workload, const CallOptions& options);

// The backward, of a forward's outputs: adds its gradients to them.
void add_backward(const Workload& workload, const CallOptions& options, Results& results);

// Every input as dense arrays under the names that --dump uses.
std::vector<NamedArray> input_arrays(const Workload& workload);

// The memory and the bindings of one direction of a workload, on the host or on a GPU: inputs in
// place, outputs poisoned, guards around both. run_workload() uses it, and tests of streams and
// CUDA graphs.
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

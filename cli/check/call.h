// Runs a workload on an engine: outputs poisoned first, memory around every tensor watched, a
// backward fed with its own forward's outputs.
#pragma once

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

}  // namespace fovea::cli

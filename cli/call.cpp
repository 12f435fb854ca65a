#include "call.h"

#include <algorithm>
#include <chrono>

#include "call_memory.h"

namespace fovea::cli {
namespace {

Pass run_pass(fovea_problem problem, CallMemory& memory, const CallOptions& options) {
  Gpu* const gpu = Gpu::find(options.device);
  fovea_plan_options wanted{};
  wanted.struct_size = sizeof wanted;
  wanted.engine = options.engine.empty() ? nullptr : options.engine.c_str();
  wanted.device = options.device.c_str();
  fovea_plan made = nullptr;
  check(fovea_plan_create(problem, &wanted, &made));
  const Plan plan(made);

  Pass pass;
  pass.ran = true;
  pass.engine = fovea_plan_engine(plan.get());
  check(fovea_plan_workspace(plan.get(), nullptr, &pass.workspace_bytes));
  memory.set_workspace(pass.workspace_bytes);
  memory.set_threads(options.threads);
  double spent = 0;
  for (int i = 0; i < options.repeat || spent < options.seconds; ++i) {
    if (i > 0 && options.seconds == 0) memory.poison_outputs();
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    check(fovea_plan_run(plan.get(), &memory.bindings()));
    if (gpu != nullptr) gpu->wait();
    pass.seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    spent += pass.seconds.back();
  }
  std::ranges::sort(pass.seconds);
  memory.fetch();
  pass.complaints = memory.complaints();
  return pass;
}

}  // namespace

const Array* Results::find(const std::string& name) const {
  const auto found = std::ranges::find(arrays, name, &NamedArray::name);
  return found == arrays.end() ? nullptr : &found->array;
}

Results run_forward(const Workload& workload, const CallOptions& options) {
  Results results;
  CallMemory memory(workload, false, results, Gpu::find(options.device));
  results.forward = run_pass(workload.forward.get(), memory, options);
  memory.collect(results.arrays, false);
  return results;
}

void add_backward(const Workload& workload, const CallOptions& options, Results& results) {
  CallMemory memory(workload, true, results, Gpu::find(options.device));
  results.backward = run_pass(workload.backward.get(), memory, options);
  memory.collect(results.arrays, true);
}

Results run_workload(const Workload& workload, const CallOptions& options) {
  Results results = run_forward(workload, options);
  if (workload.backward) add_backward(workload, options, results);
  return results;
}

}  // namespace fovea::cli

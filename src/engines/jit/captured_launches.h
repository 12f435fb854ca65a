// The sums of captured gradients in one call: where they are in the workspace, cleared before the
// kernels that add to them and written out after those.
#pragma once

#include "attention/bindings.h"
#include "attention/extents.h"
#include "engines/jit/arguments.h"
#include "engines/jit/device/captured_arguments.h"

namespace fovea::jit {

std::int64_t bytes_of_sum(device::SumsKept kept);
// Of one target, rounded up so that the next one's are aligned to 16.
std::int64_t sum_bytes(const PreparedPlan& prepared, const WantedGradient& target,
                       const Sizes& sizes);

std::int64_t captured_sum_bytes(const PreparedPlan& prepared, const Sizes& sizes);

// `visit(target, offset in bytes)` for every target that has sums.
template <class Visit>
void for_each_sum(const PreparedPlan& prepared, const Sizes& sizes, const Visit& visit) {
  std::int64_t offset = 0;
  for (const WantedGradient& target : prepared.captured.targets()) {
    if (target.kept == device::SumsKept::Nowhere) continue;
    visit(target, offset);
    offset += sum_bytes(prepared, target, sizes);
  }
}

// Zeros in the workspace, by a plan's kernel for that.
void launch_clear(cuda::Handle kernel, const device::ClearArguments& call,
                  const PreparedPlan& prepared, void* stream);

// Launches that clear and write sums, if no kernel of the plan does so beside its own work: those
// do it for small sums.
class CapturedLaunches {
 public:
  // Writes what the plan's kernels are to do into `arguments`, behind what pack() has put there.
  CapturedLaunches(const PreparedPlan& prepared, const Bindings& bindings, Arguments& arguments);

  void clear(cuda::Handle kernel) const;  // before the plan's kernels
  void write(cuda::Handle kernel) const;  // behind them

 private:
  template <class Visit>
  void for_each_call(const Visit& visit) const;  // the call that writes each target
  bool is_written_beside(const device::CallArguments& call) const;

  const PreparedPlan& prepared_;
  const Bindings& bindings_;
  std::byte* sums_;
  std::int64_t pieces_ = 0;  // to be cleared
  bool writes_ = false;
};

}  // namespace fovea::jit

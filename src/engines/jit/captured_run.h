// One call's sums of captured gradients: where they lie in the workspace, cleared before the
// kernels that add to them and written out behind those.
#pragma once

#include "attention/bindings.h"
#include "attention/extents.h"
#include "engines/jit/arguments.h"
#include "engines/jit/device/captured_call.h"

namespace fovea::jit {

std::int64_t bytes_of_sum(device::SumsKept kept);
// Of one target, rounded up so that the next one's are aligned to 16.
std::int64_t sum_bytes(const Prepared& prepared, const CapturedTarget& target, const Sizes& sizes);

std::int64_t captured_sum_bytes(const Prepared& prepared, const Sizes& sizes);

// `visit(target, offset in bytes)` for every target that has sums.
template <class Visit>
void for_each_sum(const Prepared& prepared, const Sizes& sizes, const Visit& visit) {
  std::int64_t offset = 0;
  for (const CapturedTarget& target : prepared.captured.targets()) {
    if (target.kept == device::SumsKept::Nowhere) continue;
    visit(target, offset);
    offset += sum_bytes(prepared, target, sizes);
  }
}

// Zeros in the workspace, by a plan's kernel for that.
void launch_clear(cuda::Handle kernel, const device::ClearCall& call, const Prepared& prepared,
                  void* stream);

// What is left to do beside the plan's kernels: small sums are cleared and written by those.
class CapturedRun {
 public:
  // Tells them so: behind what pack() has put into `arguments`.
  CapturedRun(const Prepared& prepared, const Memory& memory, const Bindings& bindings,
              Arguments& arguments);

  void clear(cuda::Handle kernel) const;  // before them
  void write(cuda::Handle kernel) const;  // behind them

 private:
  template <class Visit>
  void for_each_call(const Visit& visit) const;  // the call that writes each target
  bool is_written_beside(const device::Call& call) const;

  const Prepared& prepared_;
  const Memory& memory_;
  const Bindings& bindings_;
  std::int64_t pieces_ = 0;  // to be cleared
  bool writes_ = false;
};

}  // namespace fovea::jit

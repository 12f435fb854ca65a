// One call's sums of captured gradients: where they lie in the workspace, cleared before the
// kernels and written out behind them. Used by plan, memory and arguments.
#pragma once

#include "attention/bindings.h"
#include "attention/extents.h"
#include "engines/jit/memory.h"

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

void clear_captured(const Prepared& prepared, const Memory& memory, const Bindings& bindings,
                    cuda::Handle kernel);
void write_captured(const Prepared& prepared, const Memory& memory, const Bindings& bindings,
                    cuda::Handle kernel);

}  // namespace fovea::jit

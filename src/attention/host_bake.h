// What the plans of engines on the host depend on: the formulas, types and features of a Problem.
// All else (sizes, strides, scale, offsets, values) they read from Bindings at every call, so that
// it never needs another plan.
#pragma once

#include <vector>

#include "attention/engine.h"
#include "ir/lift.h"

namespace fovea {

// With Shifts::Lift numbers that only shift positions are read at every call, too: of use if a plan
// takes seconds to compile.
Baking bake_for_host(const Problem& problem, ir::Shifts shifts = ir::Shifts::Stay);

// Such an engine judges no other device than a CPU.
void refuse_other_devices(const std::string& engine, const Device& device, Verdict& verdict);

// Asked for by slot; slots beyond the list (lifted literals) are not wanted.
inline bool wanted(const std::vector<bool>& list, std::size_t slot) {
  return slot < list.size() && list[slot];
}

}  // namespace fovea

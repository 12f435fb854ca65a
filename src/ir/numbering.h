// Which slot each captured tensor and scalar of a Program gets: by structure alone, so that
// neither names nor the order of declaration count. Used by ir/program.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/program.h"

namespace fovea::ir {

struct Slots {
  std::vector<std::uint32_t> tensors, scalars;  // old slot -> new slot
};

// The roots may be null.
Slots canonical_slots(std::span<const Expr> roots, const Declarations& declarations);

}  // namespace fovea::ir

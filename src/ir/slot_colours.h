// Tells the captured tensors and scalars of formulas apart by what they are used for, whatever
// their names and slots.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/program.h"

namespace fovea::ir {

// Hashes by slot, the same in every process. Different for all that is used; alike only for things
// that are not used and have one type.
struct SlotColours {
  std::vector<std::uint64_t> tensors, scalars;
};

// The roots may be null.
SlotColours find_slot_colours(std::span<const Expr> roots, const Declarations& declarations);

}  // namespace fovea::ir

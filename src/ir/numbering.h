// Which slot each captured tensor and scalar of a Program gets: by structure alone, so that neither
// names nor the order of declarations matter.
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

// Each item at its new slot.
template <class T>
std::vector<T> reordered(const std::vector<T>& items, const std::vector<std::uint32_t>& slots) {
  std::vector<T> out(items.size());
  for (std::size_t old = 0; old < items.size(); ++old) out[slots[old]] = items[old];
  return out;
}

}  // namespace fovea::ir

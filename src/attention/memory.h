// Where tensors lie in memory, to find outputs that overlap. Used by validate_bindings only.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "ir/limits.h"

namespace fovea {

// A strided block of memory that a call reads or writes. Strides are in bytes and at least 0.
struct Region {
  std::string_view name;
  std::uintptr_t address = 0;
  std::int64_t element_bytes = 1;
  std::size_t rank = 0;
  std::array<std::int64_t, ir::limits::rank> extent{}, stride{};
  bool written = false;

  bool empty() const;
  std::int64_t bytes() const;  // from the first to behind the last element
};

// Whether both may share a byte. Regions that interleave without touching, such as the gradients
// of packed q, k and v, are told apart.
bool overlap(const Region& a, const Region& b);

// Throws InvalidArgument that names both, where something written overlaps anything else.
void check_overlaps(const std::vector<Region>& regions);

}  // namespace fovea

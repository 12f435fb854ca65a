// Where tensors lie in memory, to find outputs that overlap.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "attention/refuse.h"
#include "ir/limits.h"

namespace fovea {

// A strided block of memory that a call reads or writes. Strides are in bytes and at least 0.
struct Region {
  std::string name;
  std::uintptr_t address = 0;
  std::int64_t element_bytes = 1;
  std::size_t rank = 0;
  std::array<std::int64_t, ir::limits::rank> extent{}, stride{};

  bool empty() const;
  std::int64_t bytes() const;  // from the first to behind the last element
};

// Whether both may share a byte. Regions that interleave without touching, such as the gradients
// of packed q, k and v, are told apart.
bool overlap(const Region& a, const Region& b);

// From its first byte to behind its last: all that has to be known of most regions.
struct ByteRange {
  std::uintptr_t address = 0, bytes = 0;
  bool written = false;
};
// By differences: an end may lie behind the last address.
inline bool meet(const ByteRange& a, const ByteRange& b) {
  return a.address <= b.address ? b.address - a.address < a.bytes && b.bytes != 0
                                : a.address - b.address < b.bytes && a.bytes != 0;
}

// Throws InvalidArgument that names both, if something written overlaps anything else. Only for
// ranges that meet is `region_of(i)` asked for the region itself.
template <class RegionOf>
void check_overlaps(std::span<const ByteRange> ranges, const RegionOf& region_of) {
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (!ranges[i].written) continue;
    for (std::size_t j = 0; j < ranges.size(); ++j) {
      if (i == j || (ranges[j].written && j < i) || !meet(ranges[i], ranges[j])) continue;
      const Region a = region_of(i), b = region_of(j);
      if (overlap(a, b)) refuse(a.name, "is written, but shares memory with " + b.name);
    }
  }
}

}  // namespace fovea

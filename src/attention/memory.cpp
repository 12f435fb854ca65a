#include "attention/memory.h"

#include <algorithm>
#include <string>

#include "attention/refuse.h"

namespace fovea {
namespace {

// The bytes that elements take within one period of `pitch`: from `first` on, `bytes` of them.
struct Window {
  std::int64_t first = 0, bytes = 0;
};

// Dimensions that step by whole periods do not move the window; the others widen it.
Window window_of(const Region& region, std::int64_t pitch) {
  Window window{static_cast<std::int64_t>(region.address % static_cast<std::uintptr_t>(pitch)),
                region.element_bytes};
  for (std::size_t i = 0; i < region.rank; ++i) {
    if (region.stride[i] % pitch != 0) window.bytes += (region.extent[i] - 1) * region.stride[i];
  }
  return window;
}

// Both windows lie on a circle of `pitch` bytes.
bool apart(const Window& a, const Window& b, std::int64_t pitch) {
  const std::int64_t ahead = (b.first - a.first + pitch) % pitch;  // from a to b
  return a.bytes <= ahead && b.bytes <= pitch - ahead;
}

bool separated_by_stride_of(const Region& which, const Region& a, const Region& b) {
  for (std::size_t i = 0; i < which.rank; ++i) {
    const std::int64_t pitch = which.stride[i];
    if (which.extent[i] > 1 && pitch > 0 &&
        apart(window_of(a, pitch), window_of(b, pitch), pitch)) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool Region::empty() const {
  return std::find(extent.begin(), extent.begin() + static_cast<std::ptrdiff_t>(rank), 0) !=
         extent.begin() + static_cast<std::ptrdiff_t>(rank);
}

std::int64_t Region::bytes() const {
  if (empty()) return 0;
  std::int64_t last = 0;
  for (std::size_t i = 0; i < rank; ++i) last += (extent[i] - 1) * stride[i];
  return last + element_bytes;
}

bool overlap(const Region& a, const Region& b) {
  const auto a_bytes = static_cast<std::uintptr_t>(a.bytes());
  const auto b_bytes = static_cast<std::uintptr_t>(b.bytes());
  if (a_bytes == 0 || b_bytes == 0) return false;
  // By differences: an end may lie behind the last address.
  const bool ranges_meet =
      a.address <= b.address ? b.address - a.address < a_bytes : a.address - b.address < b_bytes;
  return ranges_meet && !separated_by_stride_of(a, a, b) && !separated_by_stride_of(b, a, b);
}

void check_overlaps(const std::vector<Region>& regions) {
  for (std::size_t i = 0; i < regions.size(); ++i) {
    if (!regions[i].written) continue;
    for (std::size_t j = 0; j < regions.size(); ++j) {
      if (i == j || (regions[j].written && j < i) || !overlap(regions[i], regions[j])) continue;
      refuse(regions[i].name, "is written, but shares memory with " + std::string(regions[j].name));
    }
  }
}

}  // namespace fovea

#include "attention/memory.h"

#include <algorithm>

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
  const ByteRange of_a{a.address, static_cast<std::uintptr_t>(a.bytes()), false};
  const ByteRange of_b{b.address, static_cast<std::uintptr_t>(b.bytes()), false};
  return meet(of_a, of_b) && !separated_by_stride_of(a, a, b) && !separated_by_stride_of(b, a, b);
}

}  // namespace fovea

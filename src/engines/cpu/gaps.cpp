#include "engines/cpu/gaps.h"

#include <cstring>

namespace fovea::cpu {

void write_zeros(const Written& to, const RowRange& range) {
  const Strides& strides = to.tensor.strides;
  const auto size = static_cast<std::size_t>(dtype_size(to.dtype));
  const auto address = [&](std::int64_t head, std::int64_t row, std::int64_t column) {
    const std::int64_t at =
        range.b * strides.b + head * strides.h + row * strides.s + column * strides.d;
    return static_cast<std::byte*>(to.tensor.data) + at * static_cast<std::int64_t>(size);
  };
  for (std::int64_t head = 0; head < to.heads; ++head) {
    for (std::int64_t row = range.first; row < range.last; ++row) {
      if (strides.d == 1) {
        std::memset(address(head, row, 0), 0, size * static_cast<std::size_t>(to.columns));
        continue;
      }
      for (std::int64_t c = 0; c < to.columns; ++c) std::memset(address(head, row, c), 0, size);
    }
  }
}

}  // namespace fovea::cpu

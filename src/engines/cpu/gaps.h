// Rows that belong to no sequence: past the length of a sequence or, if packed, before, between and
// after the sequences. No block visits them; they are written as zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "engines/cpu/call.h"

namespace fovea::cpu {

struct RowRange {
  std::int64_t b = 0;  // of the tensors
  std::int64_t first = 0, last = 0;
};

// Calls body(range) for every range of rows of the queries (or of the keys) in no sequence.
template <class Body>
void for_gaps(const Call& call, bool of_keys, const Body& body) {
  const bool packed = call.baked.layout == Layout::Thd;
  const std::int64_t rows = of_keys ? call.geometry.k_rows() : call.geometry.q_rows();
  std::int64_t done = 0;
  for (std::int64_t b = 0; b < call.sizes.b; ++b) {
    const Sequence sequence = call.geometry.sequence(b);
    const std::int64_t first = of_keys ? sequence.k_first : sequence.q_first;
    const std::int64_t last = first + (of_keys ? sequence.k_length : sequence.q_length);
    if (packed) {
      if (done < first) body(RowRange{0, done, first});
      done = last;
    } else if (last < rows) {
      body(RowRange{b, last, rows});
    }
  }
  if (packed && done < rows) body(RowRange{0, done, rows});
}

// A tensor in which rows of all heads are set to zero.
struct ZeroedTensor {
  const BoundTensor& tensor;
  DType dtype;
  std::int64_t heads, columns;
};
inline void write_zeros(const ZeroedTensor& to, const RowRange& range) {
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

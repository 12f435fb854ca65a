// Rows that belong to no sequence: past a sequence's length or, packed, before, between and behind
// them. No block visits them; they are written as zeros.
#pragma once

#include <cstdint>

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

// Zeros in rows of all heads of a tensor.
struct Written {
  const BoundTensor& tensor;
  DType dtype;
  std::int64_t heads, columns;
};
void write_zeros(const Written& to, const RowRange& range);

}  // namespace fovea::cpu

// Which rows of the tensors belong to which sequence: packed or not, with or without lengths and
// offsets per sequence. The device's attention/extents.
#pragma once

#include "arguments.h"
#include "primitives.h"

namespace fovea::device {

template <class T>
FOVEA_DEVICE T value_of(const PerCall<T>& x) {
  return x.device != nullptr ? *x.device : x.value;
}

// Position i of a sequence is row first + i of the tensors.
struct Sequence {
  int b;  // in the tensors of queries and keys: 0 if packed
  int q_length, k_length;
  long long q_first, k_first;
  int q_offset, k_offset;  // added to what formulas see
};

FOVEA_DEVICE Sequence sequence_of(const CallArguments& call, int b) {
  Sequence s;
  s.b = call.q_starts != nullptr ? 0 : b;
  s.q_length = call.sq;
  s.k_length = call.skv;
  s.q_first = s.k_first = 0;
  if (call.q_starts != nullptr) {
    s.q_first = call.q_starts[b];
    s.k_first = call.k_starts[b];
    s.q_length = call.q_starts[b + 1] - call.q_starts[b];
    s.k_length = call.k_starts[b + 1] - call.k_starts[b];
  }
  if (call.q_lengths != nullptr) s.q_length = call.q_lengths[b];
  if (call.k_lengths != nullptr) s.k_length = call.k_lengths[b];
  s.q_offset = call.q_offsets != nullptr ? call.q_offsets[b] : value_of(call.q_offset);
  s.k_offset = call.k_offsets != nullptr ? call.k_offsets[b] : value_of(call.k_offset);
  return s;
}

// Blocks that read or add to the same part of a captured tensor for several batches run at the same
// time, so that it stays in a cache: so many batches are the fastest index of a grid.
FOVEA_DEVICE int batches_together(int batches) {
  return batches % 4 == 0 ? 4 : batches % 2 == 0 ? 2 : 1;
}

// What formulas see of a position.
FOVEA_DEVICE int seen(int position, int offset) {
  return static_cast<int>(static_cast<unsigned>(position) + static_cast<unsigned>(offset));
}

// Where lse, row_max, grad_lse and delta have query row `row` of the tensors.
FOVEA_DEVICE long long row_number(const CallArguments& call, const Sequence& s, int h,
                                  long long row) {
  return (static_cast<long long>(s.b) * call.h + h) * call.rows_q + row;
}

}  // namespace fovea::device

// Which rows of the tensors belong to which sequence, for engines that run on the host: packed or
// not, with lengths and offsets of their own or without.
#pragma once

#include <cstdint>

#include "attention/bindings.h"
#include "attention/problem.h"

namespace fovea {

template <class T>
T value_of(const PerCall<T>& x) {
  return x.device != nullptr ? *x.device : x.value;
}

// A scalar on the device is one number of its declared type, not a pair.
ir::ScalarValue scalar_value(const PerCall<ir::ScalarValue>& x, ir::Type type);

// One sequence. Position i of it is row first + i of the tensors; packed tensors have one row after
// the other and no batch, the others begin at 0 in each batch.
struct Sequence {
  std::int64_t b = 0;
  std::int64_t q_first = 0, k_first = 0;
  std::int64_t q_length = 0, k_length = 0;
  std::int32_t q_offset = 0, k_offset = 0;  // added to what formulas see
};

// The geometry of one call.
class Geometry {
 public:
  Geometry(const Problem& baked, const Bindings& bindings) : baked_(baked), bindings_(bindings) {}

  Sequence sequence(std::int64_t b) const;

  // All rows that a tensor of queries or of keys has, in or out of sequences.
  std::int64_t batches() const { return packed() ? 1 : bindings_.sizes.b; }
  std::int64_t q_rows() const { return packed() ? bindings_.sizes.t_q : bindings_.sizes.sq; }
  std::int64_t k_rows() const { return packed() ? bindings_.sizes.t_k : bindings_.sizes.skv; }

  // Where lse, row_max and grad_lse have row `row` of the queries: [B, H, Sq], packed [H, T].
  std::int64_t row_number(std::int64_t b, std::int64_t h, std::int64_t row) const {
    return ((packed() ? 0 : b) * bindings_.sizes.h + h) * q_rows() + row;
  }

 private:
  bool packed() const { return baked_.layout == Layout::Thd; }

  const Problem& baked_;
  const Bindings& bindings_;
};

}  // namespace fovea

#include "attention/bindings.h"

#include <cstring>

namespace fovea {

ir::ScalarValue scalar_value(const PerCall<ir::ScalarValue>& x, ir::Type type) {
  if (x.device == nullptr) return x.value;
  ir::ScalarValue out;
  if (type == ir::Type::I32) {
    std::memcpy(&out.i, x.device, sizeof out.i);
  } else {
    std::memcpy(&out.f, x.device, sizeof out.f);
  }
  return out;
}

Sequence Geometry::sequence(std::int64_t b) const {
  const Bindings& bound = bindings_;
  Sequence out;
  out.b = b;
  out.q_length = bound.sizes.sq;
  out.k_length = bound.sizes.skv;
  if (packed()) {
    out.q_first = bound.q_starts[b];
    out.k_first = bound.k_starts[b];
    out.q_length = bound.q_starts[b + 1] - bound.q_starts[b];
    out.k_length = bound.k_starts[b + 1] - bound.k_starts[b];
  }
  if (baked_.has_q_lengths) out.q_length = bound.q_lengths[b];
  if (baked_.has_k_lengths) out.k_length = bound.k_lengths[b];
  out.q_offset = baked_.has_q_offsets ? bound.q_offsets[b] : value_of(bound.q_offset);
  out.k_offset = baked_.has_k_offsets ? bound.k_offsets[b] : value_of(bound.k_offset);
  return out;
}

}  // namespace fovea

#include "engines/reference/gradient_loops.h"

#include <algorithm>

namespace fovea::reference {

void GradientLoops::write_zeros(const Rows& rows, bool of_keys,
                                std::span<const double> zeros) const {
  const Geometry& geometry = call_.geometry;
  const std::int64_t heads = of_keys ? sizes_.hkv : sizes_.h;
  const std::int64_t count = of_keys ? geometry.k_rows() : geometry.q_rows();
  for (std::int64_t b = 0; b < geometry.batches(); ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t row = 0; row < count; ++row) rows.write(b, h, row, zeros);
    }
  }
}

void GradientLoops::write_empty_rows() const {
  const Problem& baked = call_.baked;
  const Bindings& bound = call_.bound;
  std::ranges::fill(scratch_.q_row, 0.0);
  std::ranges::fill(scratch_.o_row, 0.0);
  if (baked.want_q) write_zeros(rows(bound.grad_q, baked.grad_q), false, scratch_.q_row);
  if (baked.want_k) write_zeros(rows(bound.grad_k, baked.grad_k), true, scratch_.q_row);
  if (baked.want_v) write_zeros(rows(bound.grad_v, baked.grad_v), true, scratch_.o_row);
}

void GradientLoops::write_keys(const Sequence& sequence, std::int64_t g) const {
  const Problem& baked = call_.baked;
  for (std::int64_t j = 0; j < sequence.k_length; ++j) {
    const std::int64_t row = sequence.k_first + j;
    if (baked.want_k) {
      rows(call_.bound.grad_k, baked.grad_k)
          .write(sequence.b, g, row, row_of(scratch_.grad_k_head, j, sizes_.d));
    }
    if (baked.want_v) {
      rows(call_.bound.grad_v, baked.grad_v)
          .write(sequence.b, g, row, row_of(scratch_.grad_v_head, j, sizes_.dv));
    }
  }
}

void GradientLoops::write_sums() const {
  captured_.write();
  for (std::size_t slot = 0; slot < call_.bound.scalars.size(); ++slot) {
    if (!wanted(call_.baked.want_scalars, slot)) continue;
    write_number(call_.bound.scalar_gradients[slot], call_.row_type, 0,
                 scratch_.grad_scalars[slot]);
  }
  for (std::int64_t h = 0; call_.baked.want_sink && h < sizes_.h; ++h) {
    write_number(call_.bound.grad_sink, call_.row_type, h,
                 scratch_.per_head[static_cast<std::size_t>(h)]);
  }
}

void GradientLoops::add_sums(const GradientLoops& other) {
  const auto add = [](std::span<double> to, std::span<const double> from) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
  };
  add(scratch_.grad_captured, other.scratch_.grad_captured);
  add(scratch_.grad_scalars, other.scratch_.grad_scalars);
  add(scratch_.per_head, other.scratch_.per_head);
}

void GradientLoops::run_heads(std::int64_t first, std::int64_t step) {
  const std::int64_t per_group = call_.heads_per_group();
  for (std::int64_t i = first; i < sizes_.b * sizes_.hkv; i += step) {
    const Sequence sequence = call_.geometry.sequence(i / sizes_.hkv);
    const std::int64_t g = i % sizes_.hkv;
    read_keys(sequence, g);
    std::ranges::fill(scratch_.grad_k_head, 0.0);
    std::ranges::fill(scratch_.grad_v_head, 0.0);
    for (std::int64_t h = g * per_group; h < (g + 1) * per_group; ++h) {
      for (std::int64_t at = 0; at < sequence.q_length; ++at) row(sequence, h, at);
    }
    write_keys(sequence, g);
  }
}

void GradientLoops::run() {
  write_empty_rows();
  run_heads(0, 1);
  write_sums();
}

}  // namespace fovea::reference

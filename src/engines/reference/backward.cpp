// The backward. With O, lse and dlse as given, p = exp(s - lse) and m the factor of dropout:
//   dV = sum of m p dO,  dp = m dot(dO, V),  delta = dot(dO, O),
//   ds = p (dp - delta + dlse),  ds0 = ds * d score_mod / d s0,
//   dQ = scale * sum of ds0 K,  dK = scale * sum of ds0 Q,
//   d sink = sum over rows of exp(sink - lse) (dlse - delta).
#include "engines/reference/backward.h"

#include <algorithm>
#include <cmath>

#include "attention/extents.h"
#include "base/error.h"

namespace fovea::reference {
namespace {

std::int64_t bound_elements(const ir::TensorView& view) {
  std::int64_t elements = view.data == nullptr ? 0 : 1;
  for (int i = 0; i < view.rank; ++i) elements *= view.extent[static_cast<std::size_t>(i)];
  return elements;
}

// Steps to the next index, last dimension fastest.
void advance(std::array<std::int64_t, ir::limits::rank>& index, const ir::TensorView& view) {
  for (auto i = static_cast<std::size_t>(view.rank); i-- > 0;) {
    if (++index[i] < view.extent[i]) return;
    index[i] = 0;
  }
}

}  // namespace

std::int64_t captured_elements(const Problem& baked, const Sizes& sizes) {
  std::int64_t sum = 0;
  for (std::size_t slot = 0; slot < baked.program.tensors().size(); ++slot) {
    if (!wanted(baked.want_tensors, slot)) continue;
    if (__builtin_add_overflow(sum, declared_elements(baked, sizes, slot), &sum)) {
      throw InvalidArgument("tensor: the captured tensors have more than 2^63 elements");
    }
  }
  return sum;
}

CapturedSums::CapturedSums(const Problem& baked, const Bindings& bindings, std::span<double> sums)
    : bindings_(bindings) {
  std::size_t first = 0;
  for (std::size_t slot = 0; slot < bindings.tensors.size(); ++slot) {
    if (!wanted(baked.want_tensors, slot)) continue;
    const std::int64_t declared = declared_elements(baked, bindings.sizes, slot);
    const std::int64_t bound = bound_elements(bindings.tensors[slot]);
    if (bound > declared) {
      throw InvalidArgument("tensor '" + baked.program.tensors()[slot].name + "' is bound with " +
                            std::to_string(bound) + " elements, but its declared extents have " +
                            std::to_string(declared) +
                            "; if its gradient is wanted, declare it as large as it is");
    }
    sums_[slot] = sums.subspan(first, static_cast<std::size_t>(bound));
    first += static_cast<std::size_t>(declared);
  }
}

void CapturedSums::add(std::uint32_t slot, const Indices& index, double x) {
  if (sums_[slot].empty()) return;
  const ir::TensorView& view = bindings_.tensors[slot];
  std::int64_t at = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(view.rank); ++i) {
    at = at * view.extent[i] + ir::clamp_index(index[i], view.extent[i]);
  }
  sums_[slot][static_cast<std::size_t>(at)] += x;
}

void CapturedSums::write() const {
  for (std::size_t slot = 0; slot < bindings_.tensors.size(); ++slot) {
    if (sums_[slot].empty()) continue;
    const BoundGradient& gradient = bindings_.tensor_gradients[slot];
    std::array<std::int64_t, ir::limits::rank> index{};
    for (const double sum : sums_[slot]) {
      std::int64_t at = 0;
      for (std::size_t i = 0; i < index.size(); ++i) at += index[i] * gradient.stride[i];
      write_number(gradient.data, gradient.dtype, at, sum);
      advance(index, bindings_.tensors[slot]);
    }
  }
}

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

namespace {

class Backward : public GradientLoops {
 public:
  using GradientLoops::GradientLoops;

 private:
  void row(const Sequence& sequence, std::int64_t h, std::int64_t i) override;
  void entry(Point& point, std::int64_t j, double lse, double row_term);
};

// One kept score: its share of dV, dQ, dK and of what formulas capture. row_term = dlse - delta.
void Backward::entry(Point& point, std::int64_t j, double lse, double row_term) {
  const double s = call_.score(point, j);
  if (s == minus_infinity) return;  // not kept
  const double p = std::exp(s - lse);
  const double m = call_.dropout.factor(point);
  add_scaled(row_of(scratch_.grad_v_head, j, sizes_.dv), m * p, scratch_.grad_o_row);
  const double dp = m * dot(scratch_.grad_o_row, call_.v_row(j));
  point.grad = p * (dp + row_term);
  const double ds0 = call_.formulas.differentiate(point, scratch_.cells);
  add_captured(call_.formulas.gradients(), [](const auto& root) { return root(0); });
  add_scaled(scratch_.grad_q_row, call_.scale * ds0, call_.k_row(j));
  add_scaled(row_of(scratch_.grad_k_head, j, sizes_.d), call_.scale * ds0, scratch_.q_row);
}

void Backward::row(const Sequence& sequence, std::int64_t h, std::int64_t i) {
  const Problem& baked = call_.baked;
  const Bindings& bound = call_.bound;
  const std::int64_t row = sequence.q_first + i;
  const std::int64_t at = call_.geometry.row_number(sequence.b, h, row);
  const double lse = read_number(bound.lse, call_.row_type, at);
  if (lse == minus_infinity) return;  // nothing was kept: no gradients, whatever dO holds

  rows(bound.q, baked.q).read(sequence.b, h, row, scratch_.q_row);
  rows(bound.o, baked.o).read(sequence.b, h, row, scratch_.o_row);
  rows(bound.grad_o, baked.grad_o).read(sequence.b, h, row, scratch_.grad_o_row);
  const double delta = dot(scratch_.grad_o_row, scratch_.o_row);
  const double dlse = baked.grad_lse ? read_number(bound.grad_lse, call_.row_type, at) : 0;
  const double row_term = dlse - delta;
  if (baked.sink) {
    scratch_.per_head[static_cast<std::size_t>(h)] += std::exp(call_.sink(h) - lse) * row_term;
  }

  std::ranges::fill(scratch_.grad_q_row, 0.0);
  Point point = call_.point(sequence, h, i);
  for (std::int64_t j = 0; j < sequence.k_length; ++j) {
    call_.move_to_key(point, sequence, j);
    entry(point, j, lse, row_term);
  }
  if (baked.want_q) {
    rows(bound.grad_q, baked.grad_q).write(sequence.b, h, row, scratch_.grad_q_row);
  }
}

}  // namespace

void backward(ReferenceCall& call) { Backward(call).run(); }

}  // namespace fovea::reference

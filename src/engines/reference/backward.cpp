// The backward. With O, lse and dlse as given, p = exp(s - lse) and m the factor of dropout:
//   dV = sum of m p dO,  dp = m dot(dO, V),  delta = dot(dO, O),
//   ds = p (dp - delta + dlse),  ds0 = ds * d score_mod / d s0,
//   dQ = scale * sum of ds0 K,  dK = scale * sum of ds0 Q,
//   d sink = sum over rows of exp(sink - lse) (dlse - delta).
#include <algorithm>
#include <cmath>

#include "engines/reference/gradient_loops.h"

namespace fovea::reference {
namespace {

class Backward : public GradientLoops {
 public:
  using GradientLoops::GradientLoops;

 private:
  void row(const Sequence& sequence, std::int64_t h, std::int64_t i) override;
  void entry(Point& point, std::int64_t j, double lse, double row_term);
  void add_captured();
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
  add_captured();
  add_scaled(scratch_.grad_q_row, call_.scale * ds0, call_.k_row(j));
  add_scaled(row_of(scratch_.grad_k_head, j, sizes_.d), call_.scale * ds0, scratch_.q_row);
}

void Backward::add_captured() {
  const Formulas& formulas = call_.formulas;
  for (std::size_t i = 0; i < formulas.load_count(); ++i) {
    captured_.add(formulas.load_term(i, scratch_.cells));
  }
  for (std::size_t i = 0; i < formulas.scalar_count(); ++i) {
    scratch_.grad_scalars[formulas.scalar_slot(i)] += formulas.scalar_term(i, scratch_.cells);
  }
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

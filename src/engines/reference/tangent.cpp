// The tangent: how the outputs of a forward and of its backward change along a direction, in which
// q, k, v, the sink and captured things move, while dO and dlse stay. x' is the change of x. With
// s = mod(s0), p = exp(s - lse), m the factor of dropout and the words of backward.cpp:
//
//   s0'  = scale (dot(Q', K) + dot(Q, K'))
//   s'   = mod_s s0' + change by captured things
//   lse' = sum of p s' [+ exp(sink - lse) sink']
//   p'   = p (s' - lse')
//   O'   = sum of m (p' V + p V')
//   dp'  = m dot(dO, V'),  delta' = dot(dO, O')
//   ds'  = p' (dp - delta + dlse) + p (dp' - delta')
//   ds0' = ds' mod_s + ds (mod_ss s0' + derivative of the change by captured things)
//   dQ'  = scale * sum of (ds0' K + ds0 K')
//   dK'  = scale * sum of (ds0' Q + ds0 Q')
//   dV'  = sum of m p' dO
//
// Since second derivatives are symmetric, this is also what a backward of the backward needs.
// lse as it is given, rounded, only keeps exp() in range: sums are divided by that of all p.
#include "engines/reference/tangent.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "attention/pool.h"
#include "engines/reference/backward.h"
#include "ir/build.h"
#include "ir/diff.h"

namespace fovea::reference {
namespace {

// The sum over captured things of the derivative by each times its tangent. Literals that were
// lifted behind the declared scalars have none.
ir::Expr change_by_captured(const ir::Gradients& first, const Problem& baked) {
  const auto tensors = static_cast<std::uint32_t>(baked.program.tensors().size());
  const auto scalars = static_cast<std::uint32_t>(baked.program.scalars().size());
  ir::Expr sum;
  const auto add = [&](const ir::Expr& term) { sum = sum ? sum + term : term; };
  for (const ir::LoadGradient& one : first.loads) {
    add(one.gradient * ir::load(ir::Type::F32, one.load->slot() + tensors, one.load->args()));
  }
  for (const ir::ScalarGradient& one : first.scalars) {
    if (one.slot >= baked.want_scalars.size()) continue;
    add(one.gradient * ir::scalar(ir::Type::F32, one.slot + scalars));
  }
  return sum ? sum : ir::constant(0.0f);
}

}  // namespace

TangentFormulas::TangentFormulas(const Problem& baked) {
  if (baked.direction != Direction::Tangent || !baked.program.mod()) return;
  const ir::WithLiterals scope(literals_of(baked.q.dtype));
  const ir::Gradients first = ir::differentiate(baked.program.mod());
  const ir::Gradients second = ir::differentiate(first.score);
  const ir::Expr change = change_by_captured(first, baked);
  const ir::Gradients of_change = ir::differentiate(change);
  const ir::Gradients by[] = {first, second, of_change};
  derivatives_ = Derivatives(
      baked, {baked.program.mod(), first.score, change, second.score, of_change.score}, by);
}

Slopes TangentFormulas::at(const Point& point, Cells cells) const {
  if (!derivatives_) return {point.score};
  derivatives_.run(point, cells);
  const auto root = [&](std::size_t i) { return derivatives_.root(i, cells); };
  return {root(0), root(1), root(2), root(3), root(4)};
}

namespace {

// The numbers of one query row.
struct RowTangent {
  double lse = 0, lse_change = 0;
  double sum = 0;                    // of all p, the sink's among them
  double term = 0, term_change = 0;  // dlse - delta
};

class Tangent : public GradientLoops {
 public:
  Tangent(ReferenceCall& call, const TangentFormulas& formulas)
      : GradientLoops(call), formulas_(formulas), wants_(wants_gradients(call.baked)) {
    bind_captured();
  }

  void write_empty_rows() const override {
    GradientLoops::write_empty_rows();
    write_zeros(dense(call_.bound.tangent_o, 3), false, scratch_.o_row);
    const std::int64_t rows = call_.geometry.batches() * sizes_.h * call_.geometry.q_rows();
    for (std::int64_t i = 0; i < rows; ++i) {
      write_number(call_.bound.tangent_lse, call_.row_type, i, 0);
    }
  }

 private:
  void bind_captured();
  Rows dense(const void* data, std::size_t tensor) const;
  void read_keys(const Sequence& sequence, std::int64_t g) override;
  void row(const Sequence& sequence, std::int64_t h, std::int64_t i) override;
  void sum_scores(Point& point, const Sequence& sequence, RowTangent& row);
  void divide(const Sequence& sequence, RowTangent& row);
  void gradients(Point& point, const Sequence& sequence, const RowTangent& row);

  const TangentFormulas& formulas_;
  bool wants_;
};

// The tangents of captured things come after all captured things: TangentFormulas numbers them so.
void Tangent::bind_captured() {
  const Bindings& bound = call_.bound;
  std::ranges::copy(bound.tensors, scratch_.tensors.begin());
  std::ranges::copy(bound.tensor_tangents,
                    scratch_.tensors.begin() + static_cast<std::ptrdiff_t>(bound.tensors.size()));
  const std::size_t first = scratch_.scalars.size() / 2;
  for (std::size_t slot = 0; slot < bound.scalar_tangents.size(); ++slot) {
    scratch_.scalars[first + slot] =
        scalar_value(bound.scalar_tangents[slot], call_.baked.program.scalars()[slot].type);
  }
}

// Rows of dense memory with the extents and the type of one of the eight tensors.
Rows Tangent::dense(const void* data, std::size_t tensor) const {
  const NamedTensor& like = named_tensors()[tensor];
  const Strides strides = dense_strides(call_.baked.layout, sizes_, like);
  return {{const_cast<void*>(data), strides}, (call_.baked.*like.spec).dtype};
}

void Tangent::read_keys(const Sequence& sequence, std::int64_t g) {
  GradientLoops::read_keys(sequence, g);
  const Rows k = dense(call_.bound.tangent_k, 1), v = dense(call_.bound.tangent_v, 2);
  for (std::int64_t j = 0; j < sequence.k_length; ++j) {
    const std::int64_t row = sequence.k_first + j;
    k.read(sequence.b, g, row, row_of(scratch_.tangent_k_head, j, sizes_.d));
    v.read(sequence.b, g, row, row_of(scratch_.tangent_v_head, j, sizes_.dv));
  }
}

// Adds up p and p s' in `row`, and in the scratch O and O', the latter without the part -lse' O.
void Tangent::sum_scores(Point& point, const Sequence& sequence, RowTangent& row) {
  for (std::int64_t j = 0; j < sequence.k_length; ++j) {
    ScoreTangent& at = scratch_.score_row[static_cast<std::size_t>(j)];
    at = {};
    call_.move_to_key(point, sequence, j);
    if (!call_.formulas.keeps(point, scratch_.cells)) continue;
    point.score = call_.scale * dot(scratch_.q_row, call_.k_row(j));
    at.slopes = formulas_.at(point, scratch_.cells);
    if (at.slopes.s == minus_infinity) continue;  // not kept: p and all that follows from it are 0
    at.p = std::exp(at.slopes.s - row.lse);
    at.factor = call_.dropout.factor(point);
    at.s0_change =
        call_.scale * (dot(scratch_.tangent_q_row, call_.k_row(j)) +
                       dot(scratch_.q_row, row_of(scratch_.tangent_k_head, j, sizes_.d)));
    at.s_change = at.slopes.by_score * at.s0_change + at.slopes.by_captured;
    row.sum += at.p;
    row.lse_change += at.p * at.s_change;
    add_scaled(scratch_.o_row, at.factor * at.p, call_.v_row(j));
    add_scaled(scratch_.tangent_o_row, at.factor * at.p * at.s_change, call_.v_row(j));
    add_scaled(scratch_.tangent_o_row, at.factor * at.p,
               row_of(scratch_.tangent_v_head, j, sizes_.dv));
  }
}

void Tangent::divide(const Sequence& sequence, RowTangent& row) {
  const double by = 1 / row.sum;
  row.lse_change *= by;
  for (double& x : scratch_.o_row) x *= by;
  for (double& x : scratch_.tangent_o_row) x *= by;
  for (ScoreTangent& at : scratch_.score_row.first(static_cast<std::size_t>(sequence.k_length))) {
    at.p *= by;
  }
  add_scaled(scratch_.tangent_o_row, -row.lse_change, scratch_.o_row);
}

void Tangent::gradients(Point& point, const Sequence& sequence, const RowTangent& row) {
  for (std::int64_t j = 0; j < sequence.k_length; ++j) {
    const ScoreTangent& at = scratch_.score_row[static_cast<std::size_t>(j)];
    if (at.p == 0) continue;
    const double p_change = at.p * (at.s_change - row.lse_change);
    const std::span<const double> tangent_v = row_of(scratch_.tangent_v_head, j, sizes_.dv);
    const double dp = at.factor * dot(scratch_.grad_o_row, call_.v_row(j));
    const double dp_change = at.factor * dot(scratch_.grad_o_row, tangent_v);
    const double ds = at.p * (dp + row.term);
    const double ds_change = p_change * (dp + row.term) + at.p * (dp_change + row.term_change);
    const Slopes& mod = at.slopes;
    const double ds0 = call_.scale * ds * mod.by_score;
    const double ds0_change =
        call_.scale *
        (ds_change * mod.by_score + ds * (mod.second * at.s0_change + mod.captured_second));
    add_scaled(row_of(scratch_.grad_v_head, j, sizes_.dv), at.factor * p_change,
               scratch_.grad_o_row);
    add_scaled(scratch_.grad_q_row, ds0_change, call_.k_row(j));
    add_scaled(scratch_.grad_q_row, ds0, row_of(scratch_.tangent_k_head, j, sizes_.d));
    const std::span<double> grad_k = row_of(scratch_.grad_k_head, j, sizes_.d);
    add_scaled(grad_k, ds0_change, scratch_.q_row);
    add_scaled(grad_k, ds0, scratch_.tangent_q_row);
    if (formulas_.derivatives().captured().empty()) continue;
    call_.move_to_key(point, sequence, j);
    point.score = call_.scale * dot(scratch_.q_row, call_.k_row(j));
    formulas_.at(point, scratch_.cells);
    add_captured(formulas_.derivatives(), [&](const auto& root) {
      return ds_change * root(0) + ds * (root(1) * at.s0_change + root(2));
    });
  }
}

void Tangent::row(const Sequence& sequence, std::int64_t h, std::int64_t i) {
  const Problem& baked = call_.baked;
  const Bindings& bound = call_.bound;
  const std::int64_t b = sequence.b, position = sequence.q_first + i;
  const std::int64_t at = call_.geometry.row_number(b, h, position);
  RowTangent row;
  row.lse = read_number(bound.lse, call_.row_type, at);
  if (row.lse == minus_infinity) return;  // nothing was kept: nothing changes

  rows(bound.q, baked.q).read(b, h, position, scratch_.q_row);
  dense(bound.tangent_q, 0).read(b, h, position, scratch_.tangent_q_row);
  Point point = call_.point(sequence, h, i);
  point.tensors = scratch_.tensors;

  std::ranges::fill(scratch_.o_row, 0.0);
  std::ranges::fill(scratch_.tangent_o_row, 0.0);
  row.sum = baked.sink ? std::exp(call_.sink(h) - row.lse) : 0;
  const double sink_p = row.sum;
  const double sink_change = baked.sink ? read_number(bound.tangent_sink, call_.row_type, h) : 0;
  row.lse_change = sink_p * sink_change;
  sum_scores(point, sequence, row);
  divide(sequence, row);
  dense(bound.tangent_o, 3).write(b, h, position, scratch_.tangent_o_row);
  write_number(bound.tangent_lse, call_.row_type, at, row.lse_change);
  if (!wants_) return;

  rows(bound.grad_o, baked.grad_o).read(b, h, position, scratch_.grad_o_row);
  row.term = -dot(scratch_.grad_o_row, scratch_.o_row);
  if (baked.grad_lse) row.term += read_number(bound.grad_lse, call_.row_type, at);
  row.term_change = -dot(scratch_.grad_o_row, scratch_.tangent_o_row);
  if (baked.sink) {
    scratch_.per_head[static_cast<std::size_t>(h)] +=
        sink_p / row.sum * ((sink_change - row.lse_change) * row.term + row.term_change);
  }
  std::ranges::fill(scratch_.grad_q_row, 0.0);
  gradients(point, sequence, row);
  if (baked.want_q) rows(bound.grad_q, baked.grad_q).write(b, h, position, scratch_.grad_q_row);
}

}  // namespace

void tangent(std::span<std::optional<ReferenceCall>> lanes, const TangentFormulas& formulas) {
  std::array<std::optional<Tangent>, most_lanes> parts;
  for (std::size_t i = 0; i < lanes.size(); ++i) parts[i].emplace(*lanes[i], formulas);
  parts[0]->write_empty_rows();
  const Bindings& bound = lanes[0]->bound;
  Executor& executor = bound.executor != nullptr ? *bound.executor : own_pool();
  const int threads = bound.threads > 0 ? bound.threads : executor.threads();
  const std::size_t workers = std::min(lanes.size(), static_cast<std::size_t>(threads));
  executor.run(workers, [&](std::size_t worker) {
    for (std::size_t i = worker; i < lanes.size(); i += workers) {
      parts[i]->run_heads(static_cast<std::int64_t>(i), static_cast<std::int64_t>(lanes.size()));
    }
  });
  for (std::size_t i = 1; i < lanes.size(); ++i) parts[0]->add_sums(*parts[i]);
  parts[0]->write_sums();
}

}  // namespace fovea::reference

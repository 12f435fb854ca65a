// The forward, as docs/semantics.md defines it:
//   s = score_mod(scale * dot(Q, K)),  lse = log(sum of exp(s) over what is kept [+ exp(sink)]),
//   O = sum of dropout(exp(s - lse)) * V.
#include "engines/reference/forward.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "attention/philox.h"
#include "ir/arith.h"

namespace fovea::reference {

Scratch Scratch::lay_out(Arena& arena, const ScratchNeeds& needs, const Sizes& sizes) {
  const auto slots = static_cast<std::int64_t>(needs.scalars);
  Scratch out;
  out.cells = arena.take_zeros<ir::Cell<double>>(static_cast<std::int64_t>(needs.cells));
  const bool tangent = needs.direction == Direction::Tangent;
  out.scalars = arena.take_zeros<ir::ScalarValue>(tangent ? 2 * slots : slots);
  out.k_head = arena.take_zeros<double>(sizes.skv, sizes.d);
  out.v_head = arena.take_zeros<double>(sizes.skv, sizes.dv);
  out.q_row = arena.take_zeros<double>(sizes.d);
  out.o_row = arena.take_zeros<double>(sizes.dv);
  out.per_head = arena.take_zeros<double>(sizes.h);
  if (needs.direction == Direction::Forward) {
    out.scores = arena.take_zeros<double>(sizes.skv);
    return out;
  }
  out.grad_o_row = arena.take_zeros<double>(sizes.dv);
  out.grad_q_row = arena.take_zeros<double>(sizes.d);
  out.grad_k_head = arena.take_zeros<double>(sizes.skv, sizes.d);
  out.grad_v_head = arena.take_zeros<double>(sizes.skv, sizes.dv);
  out.grad_scalars = arena.take_zeros<double>(slots);
  out.grad_captured = arena.take_zeros<double>(needs.captured_elements);
  if (!tangent) return out;
  out.tensors = arena.take_zeros<ir::TensorView>(2 * static_cast<std::int64_t>(needs.tensors));
  out.tangent_q_row = arena.take_zeros<double>(sizes.d);
  out.tangent_o_row = arena.take_zeros<double>(sizes.dv);
  out.tangent_k_head = arena.take_zeros<double>(sizes.skv, sizes.d);
  out.tangent_v_head = arena.take_zeros<double>(sizes.skv, sizes.dv);
  out.score_row = arena.take_zeros<ScoreTangent>(sizes.skv);
  return out;
}

namespace {

std::int32_t position(std::int64_t index, std::int32_t offset) {
  return static_cast<std::int32_t>(index + offset);  // wraps, as all i32 of formulas
}

}  // namespace

void Rows::read(std::int64_t b, std::int64_t h, std::int64_t row, std::span<double> into) const {
  std::int64_t at = address(b, h, row);
  for (double& number : into) {
    number = read_number(tensor_.data, dtype_, at);
    at += tensor_.strides.d;
  }
}

void Rows::write(std::int64_t b, std::int64_t h, std::int64_t row,
                 std::span<const double> from) const {
  std::int64_t at = address(b, h, row);
  for (const double number : from) {
    write_number(tensor_.data, dtype_, at, number);
    at += tensor_.strides.d;
  }
}

std::span<double> row_of(std::span<double> matrix, std::int64_t row, std::int64_t columns) {
  return matrix.subspan(static_cast<std::size_t>(row * columns), static_cast<std::size_t>(columns));
}

double dot(std::span<const double> a, std::span<const double> b) {
  constexpr std::size_t lanes = 8;  // what vector instructions add at a time
  std::array<double, lanes> sums{};
  std::size_t i = 0;
  for (; i + lanes <= a.size(); i += lanes) {
    for (std::size_t j = 0; j < lanes; ++j) sums[j] += a[i + j] * b[i + j];
  }
  double sum = 0;
  for (; i < a.size(); ++i) sum += a[i] * b[i];
  for (const double one : sums) sum += one;
  return sum;
}

void add_scaled(std::span<double> sum, double factor, std::span<const double> x) {
  for (std::size_t i = 0; i < x.size(); ++i) sum[i] += factor * x[i];
}

Dropout::Dropout(const Bindings& bindings)
    : probability_(static_cast<double>(value_of(bindings.dropout))),
      threshold_(dropout_threshold(value_of(bindings.dropout))),
      seed_(value_of(bindings.seed)),
      offset_(value_of(bindings.offset)) {}

double Dropout::factor(const Point& point) const {
  if (probability_ == 0) return 1;
  const auto bits = [](std::int32_t x) { return static_cast<std::uint32_t>(x); };
  const DropoutPoint at{bits(point.k), bits(point.q),
                        bits(point.b) * bits(point.H) + bits(point.h)};
  return dropout_keeps(seed_, offset_, at, threshold_) ? 1 / (1 - probability_) : 0;
}

ReferenceCall::ReferenceCall(const Problem& problem, const Formulas& program,
                             const Bindings& bindings, Scratch memory)
    : baked(problem),
      formulas(program),
      bound(bindings),
      scratch(memory),
      geometry(problem, bindings),
      dropout(bindings),
      scale(joined_double(value_of(bindings.scale), bindings.scale_rest)),
      row_type(problem.q.dtype == DType::F64 ? DType::F64 : DType::F32) {
  const std::size_t declared = bindings.scalars.size();
  for (std::size_t slot = 0; slot < declared; ++slot) {
    scratch.scalars[slot] =
        scalar_value(bindings.scalars[slot], problem.program.scalars()[slot].type);
  }
  for (std::size_t i = 0; i < bindings.literals.size(); ++i) {
    scratch.scalars[declared + i].f = bindings.literals[i];
  }
}

void ReferenceCall::read_keys(const Sequence& sequence, std::int64_t g) {
  const Rows k(bound.k, baked.k.dtype), v(bound.v, baked.v.dtype);
  for (std::int64_t j = 0; j < sequence.k_length; ++j) {
    const std::int64_t row = sequence.k_first + j;
    k.read(sequence.b, g, row, row_of(scratch.k_head, j, bound.sizes.d));
    v.read(sequence.b, g, row, row_of(scratch.v_head, j, bound.sizes.dv));
  }
}

std::span<const double> ReferenceCall::k_row(std::int64_t i) const {
  return row_of(scratch.k_head, i, bound.sizes.d);
}
std::span<const double> ReferenceCall::v_row(std::int64_t i) const {
  return row_of(scratch.v_head, i, bound.sizes.dv);
}

Point ReferenceCall::point(const Sequence& sequence, std::int64_t h, std::int64_t i) const {
  const auto size = [](std::int64_t x) { return static_cast<std::int32_t>(x); };
  Point point;
  point.b = position(sequence.b, value_of(bound.b_offset));
  point.h = position(h, value_of(bound.h_offset));
  point.q = position(i, sequence.q_offset);
  point.B = size(bound.sizes.b);
  point.H = bound.h_global != 0 ? bound.h_global : size(bound.sizes.h);
  point.Hkv = size(bound.sizes.hkv);
  point.Sq = size(sequence.q_length);
  point.Skv = size(sequence.k_length);
  point.scalars = scratch.scalars;
  point.tensors = bound.tensors;
  return point;
}

void ReferenceCall::move_to_key(Point& point, const Sequence& sequence, std::int64_t j) const {
  point.k = position(j, sequence.k_offset);
}

double ReferenceCall::score(Point& point, std::int64_t j) const {
  if (!formulas.keeps(point, scratch.cells)) return minus_infinity;
  point.score = scale * dot(scratch.q_row, k_row(j));
  return formulas.modified_score(point, scratch.cells);
}

double ReferenceCall::sink(std::int64_t h) const {
  return baked.sink ? read_number(bound.sink, row_type, h) : minus_infinity;
}

namespace {

void write_row_value(const ReferenceCall& call, void* rows, std::int64_t at, double value) {
  if (rows != nullptr) write_number(rows, call.row_type, at, value);
}

// Rows that no loop visits, past a sequence's length or in no sequence, keep what is written here.
void write_empty_rows(ReferenceCall& call) {
  std::ranges::fill(call.scratch.o_row, 0.0);
  std::ranges::fill(call.scratch.per_head, minus_infinity);
  const Rows o(call.bound.o, call.baked.o.dtype);
  for (std::int64_t b = 0; b < call.geometry.batches(); ++b) {
    for (std::int64_t h = 0; h < call.bound.sizes.h; ++h) {
      for (std::int64_t row = 0; row < call.geometry.q_rows(); ++row) {
        o.write(b, h, row, call.scratch.o_row);
        const std::int64_t at = call.geometry.row_number(b, h, row);
        if (call.baked.lse) write_row_value(call, call.bound.lse, at, minus_infinity);
        if (call.baked.row_max) write_row_value(call, call.bound.row_max, at, minus_infinity);
      }
    }
  }
}

// log(sum of exp(s) + exp(sink)). Shifted by the largest term so that nothing overflows, but not by
// an infinite one: inf - inf would be NaN, but the definition gives inf.
double log_sum_exp(std::span<const double> scores, double sink, double row_max) {
  const double largest = ir::arith::maximum(row_max, sink);
  const double shift = std::isinf(largest) ? 0 : largest;
  double sum = std::exp(sink - shift);
  for (const double s : scores) sum += std::exp(s - shift);  // exp(-inf) is 0: not kept
  return shift + std::log(sum);
}

void forward_row(ReferenceCall& call, const Sequence& sequence, std::int64_t h, std::int64_t i) {
  const std::int64_t row = sequence.q_first + i;
  const auto scores = call.scratch.scores.first(static_cast<std::size_t>(sequence.k_length));
  const std::span<double> o_row = call.scratch.o_row;
  Rows(call.bound.q, call.baked.q.dtype).read(sequence.b, h, row, call.scratch.q_row);

  Point point = call.point(sequence, h, i);
  double row_max = minus_infinity;
  for (std::int64_t j = 0; j < sequence.k_length; ++j) {
    call.move_to_key(point, sequence, j);
    double& s = scores[static_cast<std::size_t>(j)];
    s = call.score(point, j);
    row_max = ir::arith::maximum(row_max, s);
  }
  const double lse = log_sum_exp(scores, call.sink(h), row_max);

  std::ranges::fill(o_row, 0.0);
  for (std::int64_t j = 0; j < sequence.k_length; ++j) {
    const double s = scores[static_cast<std::size_t>(j)];
    if (s == minus_infinity) continue;  // not kept: V is not read, not even times 0
    call.move_to_key(point, sequence, j);
    add_scaled(o_row, std::exp(s - lse) * call.dropout.factor(point), call.v_row(j));
  }

  Rows(call.bound.o, call.baked.o.dtype).write(sequence.b, h, row, o_row);
  const std::int64_t at = call.geometry.row_number(sequence.b, h, row);
  if (call.baked.lse) write_row_value(call, call.bound.lse, at, lse);
  if (call.baked.row_max) write_row_value(call, call.bound.row_max, at, row_max);
  double& max_logit = call.scratch.per_head[static_cast<std::size_t>(h)];
  max_logit = ir::arith::maximum(max_logit, row_max);
}

}  // namespace

void forward(ReferenceCall& call) {
  const Sizes& sizes = call.bound.sizes;
  write_empty_rows(call);
  for (std::int64_t b = 0; b < sizes.b; ++b) {
    const Sequence sequence = call.geometry.sequence(b);
    for (std::int64_t g = 0; g < sizes.hkv; ++g) {
      call.read_keys(sequence, g);
      const std::int64_t first = g * call.heads_per_group();
      for (std::int64_t h = first; h < first + call.heads_per_group(); ++h) {
        for (std::int64_t i = 0; i < sequence.q_length; ++i) forward_row(call, sequence, h, i);
      }
    }
  }
  if (!call.baked.max_logit) return;
  for (std::int64_t h = 0; h < sizes.h; ++h) {
    write_row_value(call, call.bound.max_logit, h,
                    call.scratch.per_head[static_cast<std::size_t>(h)]);
  }
}

}  // namespace fovea::reference

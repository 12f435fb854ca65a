#include "engines/reference/call.h"

#include <array>

#include "attention/philox.h"

namespace fovea::reference {
namespace {

std::int32_t position(std::int64_t index, std::int32_t offset) {
  return static_cast<std::int32_t>(index + offset);  // wraps, as all i32 of formulas
}

}  // namespace

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

}  // namespace fovea::reference

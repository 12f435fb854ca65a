// The value of formulas at one point: the definition of what a Program means, in float and in
// double (ir/arith says how the two differ). Written for reading; engines are tested against it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "ir/arith.h"
#include "ir/expr.h"
#include "ir/program.h"
#include "ir/topology.h"

namespace fovea::ir {

// A captured tensor in host memory as formulas read it. Reading clamps every index, so that no
// formula can read outside.
struct TensorView {
  const void* data = nullptr;
  DType dtype = DType::F32;
  int rank = 0;
  std::array<std::int64_t, limits::rank> extent{};
  std::array<std::int64_t, limits::rank> stride{};  // in elements

  // Contiguous, last index fastest.
  static TensorView dense(const void* data, DType dtype, std::span<const std::int64_t> extents);
};

// i clamped to [0, extent).
constexpr std::int64_t clamp_index(std::int64_t i, std::int64_t extent) {
  return i < 0 || extent <= 0 ? 0 : i < extent ? i : extent - 1;
}

// What a load of an i64 gives.
inline std::int32_t saturate(std::int64_t x) {
  using Limits = std::numeric_limits<std::int32_t>;
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(x, Limits::min(), Limits::max()));
}

// The element at `index` (clamped), as the type that formulas compute with: i64 saturates to i32.
// A tensor with nothing in it reads as 0.
template <class Real>
Cell<Real> read_element(const TensorView& tensor, std::span<const std::int32_t> index);

// A scalar bound per call; the field of its declared type counts.
struct ScalarValue {
  float f = 0;
  std::int32_t i = 0;
  double rest = 0;  // of a call with f64 tensors: what f lacks of the double that was given

  double real() const { return joined_double(f, rest); }
};

// Where formulas are evaluated.
template <class Real>
struct Point {
  Real score = 0;
  Real grad = 0;
  std::int32_t b = 0, h = 0, q = 0, k = 0;
  std::int32_t B = 1, H = 1, Hkv = 1, Sq = 1, Skv = 1;
  std::span<const ScalarValue> scalars;  // by slot
  std::span<const TensorView> tensors;   // by slot
};

// Formulas put in order once, to be evaluated at many points. Immutable but for the values of the
// last point, which operator() keeps; run() keeps them in the caller's memory and is safe from many
// threads.
template <class Real>
class Evaluator {
 public:
  explicit Evaluator(std::span<const Expr> roots);
  explicit Evaluator(const Expr& root) : Evaluator(std::span(&root, 1)) {}

  // Evaluates all roots; `values` has value_count() cells.
  void run(const Point<Real>& point, std::span<Cell<Real>> values) const;
  std::size_t value_count() const { return order_.nodes.size(); }
  const Cell<Real>& value(std::span<const Cell<Real>> values, std::size_t i) const {
    return values[roots_[i]];
  }

  void operator()(const Point<Real>& point) { run(point, values_); }
  // The value of root i at the last point.
  const Cell<Real>& value(std::size_t i = 0) const { return values_[roots_[i]]; }

 private:
  Cell<Real> leaf_value(const Node& node, const Point<Real>& point) const;

  std::vector<Expr> kept_;  // keeps the nodes alive
  Order order_;
  std::vector<std::uint32_t> operands_;  // numbers of all operands, node after node
  std::vector<std::uint32_t> roots_;
  std::vector<Cell<Real>> values_;
};

extern template class Evaluator<float>;
extern template class Evaluator<double>;

// One formula at one point, for tests and tools.
template <class Real>
Cell<Real> evaluate(const Expr& expr, const Point<Real>& point) {
  Evaluator<Real> evaluator(expr);
  evaluator(point);
  return evaluator.value();
}

}  // namespace fovea::ir

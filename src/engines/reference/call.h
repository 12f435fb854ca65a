// One call of the reference engine: what forward and backward share. Their loops read like the
// definition of attention; this holds the steps of it that are the same in both.
#pragma once

#include <limits>
#include <optional>
#include <span>

#include "attention/bindings.h"
#include "attention/problem.h"
#include "engines/reference/formulas.h"
#include "engines/reference/rows.h"
#include "engines/reference/scratch.h"

namespace fovea::reference {

inline constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

std::span<double> row_of(std::span<double> matrix, std::int64_t row, std::int64_t columns);
double dot(std::span<const double> a, std::span<const double> b);
void add_scaled(std::span<double> sum, double factor, std::span<const double> x);

// Whether a probability is kept, and by what it is multiplied.
class Dropout {
 public:
  explicit Dropout(const Bindings& bindings);
  double factor(const Point& point) const;  // 0 or 1 / (1 - p)

 private:
  double probability_;
  std::uint64_t threshold_, seed_, offset_;
};

struct ReferenceCall {
  ReferenceCall(const Problem& problem, const Formulas& program, const Bindings& bindings,
                Scratch memory);

  const Problem& baked;
  const Formulas& formulas;
  const Bindings& bound;
  Scratch scratch;
  Geometry geometry;
  Dropout dropout;
  double scale;
  DType row_type;  // of lse, row_max, max_logit, sink, and gradients of sinks and scalars

  std::int64_t heads_per_group() const {
    return bound.sizes.hkv == 0 ? 0 : bound.sizes.h / bound.sizes.hkv;
  }

  // K and V of one key/value head of a sequence into the scratch; row i of each.
  void read_keys(const Sequence& sequence, std::int64_t g);
  std::span<const double> k_row(std::int64_t i) const;
  std::span<const double> v_row(std::int64_t i) const;

  // What formulas see at query position i of head h, key position still 0; and at key position j.
  Point point(const Sequence& sequence, std::int64_t h, std::int64_t i) const;
  void move_to_key(Point& point, const Sequence& sequence, std::int64_t j) const;

  // s, or -inf if it is not kept: then K is not read. Leaves s0 in point.score. The query is in
  // the scratch's q_row.
  double score(Point& point, std::int64_t j) const;

  double sink(std::int64_t h) const;  // -inf if there is none
};

void forward(ReferenceCall& call);
void backward(ReferenceCall& call);

// A tangent takes its threads: each lane does some of the heads, with a scratch of its own. How
// many there are follows from sizes alone, so that the bits do not depend on the threads.
inline constexpr std::size_t most_lanes = 8;
void tangent(std::span<std::optional<ReferenceCall>> lanes, const TangentFormulas& formulas);

}  // namespace fovea::reference

// The forward of the reference engine, with the steps of a call that backward and tangent use too.
// Their loops read like the definition of attention.
#pragma once

#include <cstddef>
#include <limits>
#include <span>

#include "attention/arena.h"
#include "attention/bindings.h"
#include "attention/problem.h"
#include "engines/reference/formulas.h"
#include "engines/reference/tangent.h"
#include "ir/eval.h"

namespace fovea::reference {

// One of the eight tensors as the loops see it: rows of doubles at (batch, head, position),
// whatever the layout and the stored type.
class Rows {
 public:
  Rows(const BoundTensor& tensor, DType dtype) : tensor_(tensor), dtype_(dtype) {}

  void read(std::int64_t b, std::int64_t h, std::int64_t row, std::span<double> into) const;
  void write(std::int64_t b, std::int64_t h, std::int64_t row, std::span<const double> from) const;

 private:
  std::int64_t address(std::int64_t b, std::int64_t h, std::int64_t row) const {
    return b * tensor_.strides.b + h * tensor_.strides.h + row * tensor_.strides.s;
  }
  BoundTensor tensor_;
  DType dtype_;
};

// How much scratch memory a plan needs besides what follows from the sizes.
struct ScratchNeeds {
  Direction direction = Direction::Forward;
  std::size_t cells = 0;               // values of formulas at one point
  std::size_t scalars = 0;             // declared and lifted
  std::size_t tensors = 0;             // captured
  std::int64_t captured_elements = 0;  // of captured tensors whose gradient is wanted
};

// One score of a row: its probability, its dropout factor, the change of s0 and of s.
struct ScoreTangent {
  double p = 0, factor = 0, s0_change = 0, s_change = 0;
  Slopes slopes;
};

// Scratch memory, in double. One key/value head and one row are worked on at a time. lay_out() only
// measures if the arena has no memory, so that plans report what run() will use.
struct Scratch {
  std::span<ir::Cell<double>> cells;
  std::span<ir::ScalarValue> scalars;
  std::span<double> k_head;    // [Skv, D]
  std::span<double> v_head;    // [Skv, Dv]
  std::span<double> q_row;     // [D]
  std::span<double> o_row;     // [Dv]
  std::span<double> scores;    // [Skv], forward
  std::span<double> per_head;  // [H]: max_logit forward, the sink's gradient backward

  // Backward: gradients are summed here and written once.
  std::span<double> grad_o_row;     // [Dv]
  std::span<double> grad_q_row;     // [D]
  std::span<double> grad_k_head;    // [Skv, D]
  std::span<double> grad_v_head;    // [Skv, Dv]
  std::span<double> grad_scalars;   // by slot
  std::span<double> grad_captured;  // the wanted tensors, one after the other

  // Tangent: the direction, what changes along it, and one row of scores.
  std::span<ir::TensorView> tensors;  // captured ones, then their tangents
  std::span<double> tangent_q_row;    // [D]
  std::span<double> tangent_o_row;    // [Dv]
  std::span<double> tangent_k_head;   // [Skv, D]
  std::span<double> tangent_v_head;   // [Skv, Dv]
  std::span<ScoreTangent> score_row;  // [Skv]

  static Scratch lay_out(Arena& arena, const ScratchNeeds& needs, const Sizes& sizes);
};

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

}  // namespace fovea::reference

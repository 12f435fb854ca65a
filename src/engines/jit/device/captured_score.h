// What gradients of captured tensors and scalars are made of, in captured.h and hopper/captured.h.
// What a score adds, and where, is a term of the formula's derivative: engines/jit/captured_text
// writes a struct for each, with
//   word                 where the words of the gradient begin: the address of its sums
//   value(score)         what the score adds
//   outer(score)         the element by the indices that change with b and h alone,
//   entries(a), inner(score)  how many there are by the others, and which
//   last(a)              how many there are by the last of its indices
//   rows(a)              ElementTerm: how many by the index that is q
// so that element outer * entries + inner of the sums gets the value.
#pragma once

#include "exact_sum.h"
#include "formula.h"
#include "tile_values.h"

namespace fovea::device {

// --- where sums are: of f32 or f64 by atomics, or exact for deterministic plans ---

struct F32Sums {
  static constexpr bool exact = false;
  FOVEA_DEVICE static void add(long long sums, long long at, float x) {
    if (sums != 0) add_global(reinterpret_cast<float*>(sums) + at, x);
  }
  FOVEA_DEVICE static void add(long long sums, long long at, double x) {
    add(sums, at, static_cast<float>(x));
  }
};

struct F64Sums {
  static constexpr bool exact = false;
  FOVEA_DEVICE static void add(long long sums, long long at, double x) {
    if (sums != 0) add_global(reinterpret_cast<double*>(sums) + at, x);
  }
};

struct ExactSums {
  static constexpr bool exact = true;
  FOVEA_DEVICE static void add(long long sums, long long at, float x) {
    if (sums != 0) add_exact(reinterpret_cast<unsigned long long*>(sums) + at * exact_words, x);
  }
  FOVEA_DEVICE static void add(long long sums, long long at, double x) {
    add(sums, at, static_cast<float>(x));
  }
};

// --- what terms are told ---

struct CapturedScore {
  const Arguments& a;
  const typename Formula::Uniform& u;
  const typename Formula::Row& row;
  const typename Formula::Column& column;
  float s, grad;
  bool kept;
  int i, c;   // which of this lane's rows; which of two columns
  int j = 0;  // which pair of columns
};

template <class Term>
FOVEA_DEVICE long long element_of(const CapturedScore& x) {
  return Term::outer(x) * Term::entries(x.a) + Term::inner(x);
}
// Of the score at a row and a column of a tile.
template <class Term>
FOVEA_DEVICE long long element_at(const Arguments& a, const typename Formula::Uniform& u,
                                  const TileBox& at, int row, int column) {
  typename Formula::Row row_value{};
  typename Formula::Column column_value{};
  row_value.q = seen(row, at.q_first);
  column_value.k = seen(column, at.k_first);
  return element_of<Term>({a, u, row_value, column_value, 0, 0, true, 0, 0});
}
template <class Term>
FOVEA_DEVICE float value_of_term(const CapturedScore& x) {
  return x.kept ? Term::value(x) : 0.0f;
}

// A score at no position, for what does not depend on it.
struct NoPosition {
  typename Formula::Row row{};
  typename Formula::Column column{};
  FOVEA_DEVICE CapturedScore score(const Arguments& a, const typename Formula::Uniform& u) const {
    return {a, u, row, column, 0, 0, false, 0, 0};
  }
};

}  // namespace fovea::device

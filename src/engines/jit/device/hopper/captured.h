// Gradients of captured tensors by query and key, t[.., q, .., k], added up while
// hopper/backward.h visits its scores. As captured.h does it, but a lane has two keys and 16
// queries.
#pragma once

#include "../captured_load.h"
#include "../captured_score.h"
#include "backward_shape.h"
#include "warpgroup.h"

namespace fovea::device {

// Where a lane's scores of a step are.
struct CapturedPlace {
  int key;               // this lane's first key in the tile
  int q_seen, k_seen;    // of the tile, as formulas see them
  int q_count, k_count;  // that the sequence has
};

// Has q and k among its indices, k as the last of its sums: each score of a head has an element of
// its own.
template <class Term, class Sums>
struct ElementTerm {
  // Where a lane's elements are all inside: its first, and how far queries are apart. null: some
  // are not.
  float* first;
  long long row_step;

  FOVEA_DEVICE void begin_step(const Arguments& a, const typename Formula::Uniform& u,
                               const CapturedPlace& place) {
    first = nullptr;
    if constexpr (!Sums::exact) {
      typename Formula::Row row{}, below{};
      typename Formula::Column column{};
      row.q = seen(lane_index() % 4 * 2, place.q_seen);
      below.q = seen(row.q, 1);
      column.k = seen(place.key, place.k_seen);
      const long long element =
          element_of<Term>(CapturedScore{a, u, row, column, 0, 0, true, 0, 0});
      row_step = element_of<Term>(CapturedScore{a, u, below, column, 0, 0, true, 0, 0}) - element;
      const bool inside = place.k_seen >= 0 && place.k_count >= backward_keys &&
                          static_cast<long long>(place.k_seen) + backward_keys <= Term::last(a) &&
                          place.q_seen >= 0 && place.q_count >= backward_queries &&
                          static_cast<long long>(place.q_seen) + backward_queries <= Term::rows(a);
      const long long sums = a.words[Term::word];
      if (inside && sums != 0) first = reinterpret_cast<float*>(sums) + element;
    }
  }
  FOVEA_DEVICE void add(const CapturedScore& x) {
    const float value = value_of_term<Term>(x);
    if (value == 0) return;
    if (first != nullptr) return add_global(first + (8 * x.j + x.c) * row_step + 8 * x.i, value);
    Sums::add(x.a.words[Term::word], element_of<Term>(x), value);
  }
};

}  // namespace fovea::device

// Gradients of captured tensors and scalars, added up while hopper/backward.h visits its scores. As
// captured.h does it, but a lane has two keys and 16 queries, and what is added up from step to
// step waits in shared memory: registers are for sums of dK and dV.
#pragma once

#include "../captured_load.h"
#include "../captured_score.h"
#include "backward_shape.h"
#include "warpgroup.h"

namespace fovea::device {

// Where a lane's scores of a step are.
struct CapturedPlace {
  int warp, key;                            // of eight; this lane's first key in the tile
  int q_seen, k_seen;                       // of the tile, as formulas see them
  int q_count, k_count;                     // that the sequence has
  const typename Formula::Column* columns;  // of this lane's two keys
};

// --- the kinds of terms ---
// By each warp: begin once; begin_step, add (queries in order, for each its two keys) and end_step;
// end_head behind the last step of a head. `at` is this term's part of shared memory.

// Changes with b and h alone.
template <class Term, class Sums>
struct UniformTerm {
  static constexpr int shared_bytes = 8 * 8;  // a sum of each warp
  float sum;

  FOVEA_DEVICE void begin(Shared at) {
    if (lane_index() == 0) store_shared(at + 8 * warp_index(), 0.0);
  }
  FOVEA_DEVICE void begin_step(const Arguments&, const typename Formula::Uniform&,
                               const CapturedPlace&) {
    sum = 0;
  }
  FOVEA_DEVICE void add(const CapturedScore& x, Shared) { sum += value_of_term<Term>(x); }
  FOVEA_DEVICE void end_step(const Arguments&, const typename Formula::Uniform&,
                             const CapturedPlace& place, Shared at) {
    FOVEA_UNROLL for (int mask = 16; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
    if (lane_index() != 0) return;
    const Shared own = at + 8 * place.warp;
    store_shared(own, load_shared<double>(own) + static_cast<double>(sum));
  }
  FOVEA_DEVICE void end_head(const Arguments& a, const typename Formula::Uniform& u,
                             const CapturedPlace& place, Shared at) {
    if (lane_index() != 0) return;
    const Shared own = at + 8 * place.warp;
    const NoPosition nowhere;
    Sums::add(a.words[Term::word], element_of<Term>(nowhere.score(a, u)), load_shared<double>(own));
    store_shared(own, 0.0);
  }
};

// Changes with k, not with q.
template <class Term, class Sums>
struct ColumnTerm {
  static constexpr int shared_bytes = 4 * backward_keys;
  float sum[2];

  FOVEA_DEVICE void begin(Shared at) {
    if (lane_index() < 16) store_shared(at + 4 * (16 * warp_index() + lane_index()), 0.0f);
    sync_warp();
  }
  FOVEA_DEVICE void begin_step(const Arguments&, const typename Formula::Uniform&,
                               const CapturedPlace&) {
    sum[0] = sum[1] = 0;
  }
  FOVEA_DEVICE void add(const CapturedScore& x, Shared) { sum[x.i] += value_of_term<Term>(x); }
  FOVEA_DEVICE void end_step(const Arguments&, const typename Formula::Uniform&,
                             const CapturedPlace& place, Shared at) {
    FOVEA_UNROLL for (int r = 0; r < 2; ++r) {
      sum[r] += shuffle_xor(sum[r], 1);
      sum[r] += shuffle_xor(sum[r], 2);
      if (lane_index() % 4 != 0) continue;
      const Shared own = at + 4 * (place.key + 8 * r);
      store_shared(own, load_shared<float>(own) + sum[r]);
    }
  }
  FOVEA_DEVICE void end_head(const Arguments& a, const typename Formula::Uniform& u,
                             const CapturedPlace& place, Shared at) {
    const typename Formula::Row nowhere{};
    FOVEA_UNROLL for (int r = 0; r < 2; ++r) {
      if (lane_index() % 4 != 0) continue;
      const Shared own = at + 4 * (place.key + 8 * r);
      const auto x = load_shared<float>(own);
      store_shared(own, 0.0f);
      if (x == 0) continue;  // keys past the sequence have 0
      const CapturedScore score{a, u, nowhere, place.columns[r], 0, 0, true, r, 0};
      Sums::add(a.words[Term::word], element_of<Term>(score), x);
    }
  }
};

// Changes with q, not with k.
template <class Term, class Sums>
struct RowTerm {
  static constexpr int shared_bytes = 0;
  float sum;

  FOVEA_DEVICE void begin(Shared) {}
  FOVEA_DEVICE void begin_step(const Arguments&, const typename Formula::Uniform&,
                               const CapturedPlace&) {}
  FOVEA_DEVICE void add(const CapturedScore& x, Shared) {
    sum = (x.i == 0 ? 0.0f : sum) + value_of_term<Term>(x);
    if (x.i == 0) return;
    FOVEA_UNROLL for (int mask = 16; mask >= 4; mask /= 2) sum += shuffle_xor(sum, mask);
    // Rows past the sequence have 0.
    if (lane_index() < 4 && sum != 0) {
      Sums::add(x.a.words[Term::word], element_of<Term>(x), sum);
    }
  }
  FOVEA_DEVICE void end_step(const Arguments&, const typename Formula::Uniform&,
                             const CapturedPlace&, Shared) {}
  FOVEA_DEVICE void end_head(const Arguments&, const typename Formula::Uniform&,
                             const CapturedPlace&, Shared) {}
};

// Has q and k among its indices, k as the last of its sums: each score of a head has an element of
// its own.
template <class Term, class Sums>
struct ElementTerm {
  static constexpr int shared_bytes = 0;
  // Where a lane's elements are all inside: its first, and how far queries are apart. null: some
  // are not.
  float* first;
  long long row_step;

  FOVEA_DEVICE void begin(Shared) {}
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
  FOVEA_DEVICE void add(const CapturedScore& x, Shared) {
    const float value = value_of_term<Term>(x);
    if (value == 0) return;
    if (first != nullptr) return add_global(first + (8 * x.j + x.c) * row_step + 8 * x.i, value);
    Sums::add(x.a.words[Term::word], element_of<Term>(x), value);
  }
  FOVEA_DEVICE void end_step(const Arguments&, const typename Formula::Uniform&,
                             const CapturedPlace&, Shared) {}
  FOVEA_DEVICE void end_head(const Arguments&, const typename Formula::Uniform&,
                             const CapturedPlace&, Shared) {}
};

}  // namespace fovea::device

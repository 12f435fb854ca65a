// Gradients of captured tensors and scalars, summed while hopper/backward.h visits its scores. Like
// ../captured.h, but a lane has two keys and 16 queries, and keeps its sums between steps in its
// own words of shared memory, since the registers are needed for dK and dV.
#pragma once

#include "../captured_load.h"
#include "../captured_score.h"
#include "backward_shape.h"
#include "captured_cells.h"
#include "captured_diagonal.h"
#include "warpgroup.h"

namespace fovea::device {

// Where a lane's scores of a step are.
struct CapturedPlace {
  int key;                                  // this lane's first key in the tile
  int q_seen, k_seen;                       // of the tile, as formulas see them
  int q_count, k_count;                     // that the sequence has
  bool new_head;                            // the first step of its query head
  Shared row_words;                         // what is staged for queries
  const typename Formula::Column* columns;  // of this lane's two keys
};

// --- the kinds of terms that ask for every score; the others read dS: captured_diagonal.h,
// captured_cells.h ---
// By each warp: begin_step, add (queries in order, for each its two keys) and end_step; end_head
// behind the last step of a head. All lanes of a warp take part in each of them: products are under
// way, and the next ones are begun by all lanes at once. `place`: of a term's words among those of
// captured gradients, one or two for each thread.

// Changes with b and h alone.
template <class Term, class Sums, int place>
struct UniformTerm {
  float sum;

  FOVEA_DEVICE static Shared own() {
    return HopperBackwardShape<Config>::at.captured + place + 4 * thread_index();
  }
  FOVEA_DEVICE void begin_step(const Arguments&, const typename Formula::Uniform&,
                               const CapturedPlace& at) {
    sum = at.new_head ? 0.0f : load_shared<float>(own());
  }
  FOVEA_DEVICE void add(const CapturedScore& x) { sum += value_of_term<Term>(x); }
  FOVEA_DEVICE void end_step(const Arguments&, const typename Formula::Uniform&,
                             const CapturedPlace&) {
    store_shared(own(), sum);
  }
  FOVEA_DEVICE void end_head(const Arguments& a, const typename Formula::Uniform& u,
                             const CapturedPlace&) {
    auto all = static_cast<double>(sum);
    FOVEA_UNROLL for (int mask = 16; mask > 0; mask /= 2) all += shuffle_xor(all, mask);
    const NoPosition nowhere;
    const long long element = element_of<Term>(nowhere.score(a, u));
    if (lane_index() == 0) Sums::add(a.words[Term::word], element, all);
    sync_warp();
  }
};

// Changes with k, not with q.
template <class Term, class Sums, int place>
struct ColumnTerm {
  float sum[2];

  FOVEA_DEVICE static Shared own() {
    return HopperBackwardShape<Config>::at.captured + place + 8 * thread_index();
  }
  FOVEA_DEVICE void begin_step(const Arguments&, const typename Formula::Uniform&,
                               const CapturedPlace& at) {
    const auto before = at.new_head ? Floats2{0, 0} : load_shared<Floats2>(own());
    sum[0] = before.x, sum[1] = before.y;
  }
  FOVEA_DEVICE void add(const CapturedScore& x) { sum[x.i] += value_of_term<Term>(x); }
  FOVEA_DEVICE void end_step(const Arguments&, const typename Formula::Uniform&,
                             const CapturedPlace&) {
    store_shared(own(), Floats2{sum[0], sum[1]});
  }
  FOVEA_DEVICE void end_head(const Arguments& a, const typename Formula::Uniform& u,
                             const CapturedPlace& at) {
    const typename Formula::Row nowhere{};
    FOVEA_UNROLL for (int r = 0; r < 2; ++r) {
      float x = sum[r];
      x += shuffle_xor(x, 1);
      x += shuffle_xor(x, 2);
      const long long element =
          element_of<Term>(CapturedScore{a, u, nowhere, at.columns[r], 0, 0, true, r, 0});
      // Keys past the sequence have 0.
      if (lane_index() % 4 == 0 && x != 0) Sums::add(a.words[Term::word], element, x);
      sync_warp();
    }
  }
};

// Changes with q, not with k.
template <class Term, class Sums>
struct RowTerm {
  float sum[16];  // of query 8 j + 2 (lane % 4) + c: number 2 j + c

  FOVEA_DEVICE void begin_step(const Arguments&, const typename Formula::Uniform&,
                               const CapturedPlace&) {}
  FOVEA_DEVICE void add(const CapturedScore& x) {
    float& own = sum[2 * x.j + x.c];
    own = (x.i == 0 ? 0.0f : own) + value_of_term<Term>(x);
  }
  // Eight lanes have the same queries.
  FOVEA_DEVICE void end_step(const Arguments& a, const typename Formula::Uniform& u,
                             const CapturedPlace& at) {
    halve<8>(16);
    halve<4>(8);
    halve<2>(4);
    const typename Formula::Column nowhere{};
    FOVEA_UNROLL for (int c = 0; c < 2; ++c) {
      const int query = 2 * lane_index() + c;
      const auto row =
          staged_row<Formula>(a, u, at.row_words, backward_queries, query, seen(query, at.q_seen));
      const long long element =
          element_of<Term>(CapturedScore{a, u, row, nowhere, 0, 0, true, 0, c});
      // Queries past the sequence have 0.
      if (sum[c] != 0) Sums::add(a.words[Term::word], element, sum[c]);
      sync_warp();
    }
  }
  FOVEA_DEVICE void end_head(const Arguments&, const typename Formula::Uniform&,
                             const CapturedPlace&) {}

 private:
  // Half of the lanes take the upper half of what is left, the others the lower. In the end each
  // has two queries: 2 lane and the next.
  template <int half>
  FOVEA_DEVICE void halve(int mask) {
    const bool upper = (lane_index() & mask) != 0;
    FOVEA_UNROLL for (int i = 0; i < half; ++i) {
      const float other = shuffle_xor(upper ? sum[i] : sum[half + i], mask);
      sum[i] = (upper ? sum[half + i] : sum[i]) + other;
    }
  }
};

// Has q and k among its indices, k as the last of its sums: each score of a head has an element of
// its own.
template <class Term, class Sums>
struct ElementTerm {
  // Where a lane's elements are all inside: its first, and how far queries are apart. null: some
  // are not.
  float* first;
  int row_step;

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
      const long long step =
          element_of<Term>(CapturedScore{a, u, below, column, 0, 0, true, 0, 0}) - element;
      row_step = static_cast<int>(step);
      const bool inside = place.k_seen >= 0 && place.k_count >= Config::columns &&
                          static_cast<long long>(place.k_seen) + Config::columns <= Term::last(a) &&
                          place.q_seen >= 0 && place.q_count >= backward_queries &&
                          static_cast<long long>(place.q_seen) + backward_queries <= Term::rows(a);
      const long long sums = a.words[Term::word];
      if (inside && step == row_step && sums != 0) first = reinterpret_cast<float*>(sums) + element;
    }
  }
  FOVEA_DEVICE void add(const CapturedScore& x) {
    const float value = value_of_term<Term>(x);
    if (value == 0) return;
    if (first != nullptr) return add_global(first + (8ll * x.j + x.c) * row_step + 8 * x.i, value);
    Sums::add(x.a.words[Term::word], element_of<Term>(x), value);
  }
  FOVEA_DEVICE void end_step(const Arguments&, const typename Formula::Uniform&,
                             const CapturedPlace&) {
    sync_warp();
  }
  FOVEA_DEVICE void end_head(const Arguments&, const typename Formula::Uniform&,
                             const CapturedPlace&) {}
};

}  // namespace fovea::device

// Gradients of captured tensors whose elements are few: a table in shared memory, added to by the
// threads of a block.
#pragma once

#include "captured_load.h"
#include "captured_score.h"
#include "team.h"

namespace fovea::device {

// A head's elements in shared memory until the head changes, if they are few: `room` of them fit.
template <class Term, class Sums, int room>
struct SharedTable {
  Shared table;
  long long outer;

  // Whether a head's elements fit in `table`, and whether their numbers need more than 31 bits.
  FOVEA_DEVICE static bool small(const Arguments& a) { return Term::entries(a) <= room; }
  FOVEA_DEVICE static bool huge(const Arguments& a) { return Term::entries(a) > 0x7fffffff; }
  // By all threads of a team; a barrier must follow.
  FOVEA_DEVICE void begin(Shared at, Team team) {
    table = at;
    outer = -1;
    if constexpr (!Sums::exact) {
      FOVEA_NO_UNROLL for (int i = team.thread; i < room; i += team.threads)
          store_shared(table + 4 * i, 0.0f);
    }
  }
  // From here on sums belong to this head.
  FOVEA_DEVICE void take_head(const Arguments& a, const typename Formula::Uniform& u) {
    const NoPosition nowhere;
    outer = Term::outer(nowhere.score(a, u));
  }
  // Adds the table to the head's sums in global memory, and clears it. By all threads of a team,
  // between barriers.
  FOVEA_DEVICE void flush(const Arguments& a, Team team) const {
    if constexpr (!Sums::exact) {
      if (outer < 0 || !small(a)) return;
      const auto entries = static_cast<int>(Term::entries(a));
      FOVEA_NO_UNROLL for (int i = team.thread; i < entries; i += team.threads) {
        const float x = load_shared<float>(table + 4 * i);
        if (x == 0) continue;
        Sums::add(a.words[Term::word], outer * entries + i, x);
        store_shared(table + 4 * i, 0.0f);
      }
    }
  }
  FOVEA_DEVICE void put(const Arguments& a, long long at, float x) const {
    if (at < 0) return;
    if (!Sums::exact && small(a)) {
      add_shared(table + 4 * static_cast<int>(at), x);
    } else {
      Sums::add(a.words[Term::word], outer * Term::entries(a) + at, x);
    }
  }
  // By a warp, each lane with an element of its own or -1. Neighbours often have the same: the
  // first of each such run adds for all of it.
  FOVEA_DEVICE void put_together(const Arguments& a, long long at, float x) const {
    if (huge(a)) return put(a, at, x);
    const int lane = lane_index(), element = static_cast<int>(at);
    const int next = shuffle_down(element, 1);
    const unsigned ends = ballot(lane == 31 || element != next);  // the last lanes of runs
    const bool first = ((ends << 1 | 1u) >> lane & 1u) != 0;      // of its run
    const int behind = first_bit(ends >> lane);                   // lanes of its run
    FOVEA_UNROLL for (int step = 1; step < 32; step *= 2) {
      const float other = shuffle_down(x, step);
      if (step <= behind) x += other;
    }
    if (first) put(a, element, x);
  }
};

// The element of a head that the scores at q and k, and all others of their diagonal, add to.
// `words`: what is staged for that.
template <class Term>
FOVEA_DEVICE long long diagonal_element(const Arguments& a, const typename Formula::Uniform& u,
                                        int q, int k, const unsigned* words) {
  unsigned row_words[Formula::row_words > 0 ? Formula::row_words : 1];
  unsigned column_words[Formula::column_words > 0 ? Formula::column_words : 1];
  if constexpr (Formula::row_words > 0) Formula::make_row(a, u, q, row_words);
  if constexpr (Formula::column_words > 0) Formula::make_column(a, u, k, column_words);
  const auto row = Formula::row(a, u, q, row_words);
  auto column = Formula::column(a, u, k, column_words);
  column.pair = Formula::pair(words, 0);
  return Term::inner({a, u, row, column, 0, 0, true, 0, 0});
}

}  // namespace fovea::device

// Gradients of captured tensors whose elements change with k - q alone and that every score adds
// its own gradient to: the warps of backward_diagonals.h add up dS along its diagonals.
#pragma once

#include "../captured_table.h"
#include "../tile_values.h"
#include "backward_shape.h"

namespace fovea::device {

// Sums of the diagonals k - q = 2 n - 1, 2 n and 2 n + 1 of dS's tile, without those of the outer
// two that other threads have: keys 2 m + e and queries 2 w, 2 w + 1 with m - w = n, which are two
// sums in one word.
struct ThreeDiagonals {
  float sum[3];

  template <class Element>
  FOVEA_DEVICE void read(Element, Shared ds, int n) {
    sum[0] = sum[1] = sum[2] = 0;
    const int last = min(backward_keys / 2 - 1, n + backward_queries / 2 - 1);
    FOVEA_NO_UNROLL for (int first = max(n, 0) & ~3; first <= last; first += 4) {
      unsigned words[4][2];  // [m][e]
      FOVEA_UNROLL for (int i = 0; i < 8; ++i) {
        const int m = first + i / 2, w = m - n, key = i;  // of eight
        const bool inside = static_cast<unsigned>(w) < backward_queries / 2;
        const Shared row = ds + (2 * first + key) * 128;
        words[i / 2][i % 2] =
            inside ? load_shared<unsigned>(row + (w / 4 ^ key) * 16 + w % 4 * 4) : 0u;
      }
      FOVEA_UNROLL for (int i = 0; i < 8; ++i) {
        const unsigned word = words[i / 2][i % 2];
        sum[1 + i % 2] += to_float(Element{}, static_cast<unsigned short>(word));
        sum[i % 2] += to_float(Element{}, static_cast<unsigned short>(word >> 16));
      }
    }
  }
};

template <class Term, class Sums, int place, int room>
struct DiagonalTerm {
  SharedTable<Term, Sums, room> table;

  FOVEA_DEVICE void begin(Team team) {
    table.begin(HopperBackwardShape<Config>::at.captured + place, team);
  }
  // By three warps. `staged`: what the formula has for the diagonals.
  FOVEA_DEVICE void read(const Arguments& a, const typename Formula::Uniform& u, Shared ds,
                         const TileBox& box, Shared staged) {
    table.take_head(a, u);
    const int lane = lane_index();
    const int n = thread_index() % 128 - 32 - (backward_queries / 2 - 1);
    ThreeDiagonals three;
    three.read(typename Config::Element{}, ds, n);
    // The next lane has the rest of 2 n + 1.
    const float next = shuffle(three.sum[0], min(lane + 1, 31));
    if (lane < 31) three.sum[2] += next;
    put(a, u, box, staged, 2 * n, three.sum[1]);
    put(a, u, box, staged, 2 * n + 1, three.sum[2]);
    if (lane == 0 && three.sum[0] != 0) {
      table.put(a, element(a, u, box, staged, 2 * n - 1), three.sum[0]);
    }
    sync_warp();
  }
  FOVEA_DEVICE void flush(const Arguments& a, const typename Formula::Uniform& u, Team team) {
    table.take_head(a, u);
    table.flush(a, team);
  }

 private:
  FOVEA_DEVICE void put(const Arguments& a, const typename Formula::Uniform& u, const TileBox& box,
                        Shared staged, int difference, float sum) const {
    table.put_together(a, sum != 0 ? element(a, u, box, staged, difference) : -1, sum);
  }
  FOVEA_DEVICE static long long element(const Arguments& a, const typename Formula::Uniform& u,
                                        const TileBox& box, Shared staged, int difference) {
    constexpr int count = Formula::diagonal_words;
    unsigned words[count > 0 ? count : 1];
    load_words<count>(staged, backward_queries + backward_keys, difference + backward_queries - 1,
                      words);
    return diagonal_element<Term>(a, u, seen(max(-difference, 0), box.q_first),
                                  seen(max(difference, 0), box.k_first), words);
  }
};

}  // namespace fovea::device

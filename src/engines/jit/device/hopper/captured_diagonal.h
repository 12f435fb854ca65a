// Gradients of captured tensors whose elements change with k - q alone and that every score adds
// its own gradient to: the warps of backward_beside.h add up dS along its diagonals.
#pragma once

#include "../captured_table.h"
#include "../tile_values.h"
#include "backward_shape.h"

namespace fovea::device {

// Sums of dS's tile, [key][query], along its diagonals k - q = -64 to 127, by the matrix units.
// The tile has 16 x 8 blocks of 8 x 8 elements. Block (i, j) has parts of two diagonals out of
// eight each: of those from 8 (i - j) on, and of those from 8 (i - j) - 8 on. As a row of 64
// elements it is multiplied by 64 x 16 ones and zeros, 16 elements at a time, which leaves the
// block's share of 16 diagonals. All blocks of one i - j are added up in one row of the product.
//
// Two warps have the products with i >= j, of half of the blocks each; the third one has the
// others. They leave their sums in four parts, one behind the other.
template <class Config>
class DiagonalSums {
  using Shape = HopperBackwardShape<Config>;
  using Element = typename Config::Element;
  static constexpr int parts = 4, count = backward_queries + backward_keys;
  static_assert(backward_diagonal_bytes == 4 * parts * count);

 public:
  // By all threads of a team; a barrier must follow.
  FOVEA_DEVICE static void begin(Team team) {
    for (int i = team.thread; i < parts * count; i += team.threads) store_shared(part(0, i), 0.0f);
  }

  // By three warps, between barriers.
  FOVEA_DEVICE static void add_up(Shared ds, Team team) {
    const int warp = team.thread / 32, lane = team.thread % 32;
    float low[4] = {},
          high[4] = {};  // of the diagonals from 8 (i - j) on, and of those before them
    FOVEA_NO_UNROLL for (int i = 0; i < 16; ++i) {  // registers are few
      const int p = i % 4;                          // rows 2 p and 2 p + 1 of each block
      unsigned blocks[4], ones[2][2];               // [row][low or high]
      load_matrices(blocks, row_of_block(ds, warp, lane, i / 4, 2 * p));
      FOVEA_UNROLL for (int r = 0; r < 2; ++r) {
        const int x = 2 * p + r - lane / 4;
        const unsigned word = (x >> 1 & 3) != lane % 4 ? 0u : (x & 1) != 0 ? one << 16 : one;
        ones[r][0] = x >= 0 ? word : 0u;
        ones[r][1] = x >= 0 ? 0u : word;
      }
      multiply_add(Element{}, low, blocks, ones[0][0], ones[1][0]);
      multiply_add(Element{}, high, blocks, ones[0][1], ones[1][1]);
    }
    // Row lane / 4 of the product, and the eighth below it.
    const int first = lane / 4 * 8 + lane % 4 * 2;
    if (warp < 2) {
      FOVEA_UNROLL for (int r = 0; r < 2; ++r) {
        const int at = 64 + 64 * r + first;
        store_shared(part(2 * warp, at), Floats2{low[2 * r], low[2 * r + 1]});
        store_shared(part(2 * warp + 1, at - 8), Floats2{high[2 * r], high[2 * r + 1]});
      }
    } else {
      store_shared(part(0, first), Floats2{low[0] + low[2], low[1] + low[3]});
      if (first >= 8)
        store_shared(part(1, first - 8), Floats2{high[0] + high[2], high[1] + high[3]});
    }
    sync_warp();
  }

  // The first of the diagonals that thread number i of 96 has.
  FOVEA_DEVICE static int first_of(int i) { return 2 * i - backward_queries; }
  // The sums of that one and the next, after a barrier.
  FOVEA_DEVICE static Floats2 two(Shared ds, int i) {
    Floats2 sums{0, 0};
    FOVEA_UNROLL for (int p = 0; p < parts; ++p) {
      const auto more = load_shared<Floats2>(part(p, 2 * i));
      sums.x += more.x, sums.y += more.y;
    }
    // An infinity or a NaN, times 0, is in the sums of other diagonals as well.
    if (sums.x != sums.x) sums.x = one_by_one(ds, first_of(i));
    if (sums.y != sums.y) sums.y = one_by_one(ds, first_of(i) + 1);
    sync_warp();
    return sums;
  }

 private:
  static constexpr unsigned one = is_same_element<Element, BF16> ? 0x3f80u : 0x3c00u;

  FOVEA_DEVICE static Shared part(int p, int i) { return Shape::at.captured + 4 * (p * count + i); }

  // What this lane tells load_matrices: `row`, or the next for the upper lanes, of a block. Lanes
  // take different j at once, so that they read from different banks. Blocks beyond the tile are
  // zeros, as what part 2 has for the diagonals before 0 always is.
  FOVEA_DEVICE static Shared row_of_block(Shared ds, int warp, int lane, int turn, int row) {
    const int upper = lane / 8 % 2;
    const int distance = lane % 8 - (warp < 2 ? 0 : 8) + (warp < 2 ? 8 * upper : 0);
    const int half = warp < 2 ? warp : upper;
    const int j = (lane + 4 * half + turn) % 8, i = distance + j, own = row + lane / 16;
    return static_cast<unsigned>(i) < backward_keys / 8
               ? ds + (8 * i + own) * Shape::row_bytes + ((j ^ own) << 4)
               : part(2, 0);
  }

  FOVEA_DEVICE static float one_by_one(Shared ds, int difference) {
    float sum = 0;
    const int last = min(backward_queries, backward_keys - difference) - 1;
    FOVEA_NO_UNROLL for (int q = max(-difference, 0); q <= last; ++q) {
      const int k = q + difference;
      const Shared at = ds + k * Shape::row_bytes + ((q / 8 ^ k % 8) << 4) + q % 8 * 2;
      sum += to_float(Element{}, load_shared<unsigned short>(at));
    }
    return sum;
  }
};

template <class Term, class Sums, int place, int room>
struct DiagonalTerm {
  SharedTable<Term, Sums, room> table;

  FOVEA_DEVICE void begin(Team team) {
    table.begin(HopperBackwardShape<Config>::at.captured + place, team);
  }
  // Sums of the diagonals k - q = first and the next of a tile, by each lane of a warp. `staged`:
  // what the formula has for the diagonals.
  FOVEA_DEVICE void add_diagonals(const Arguments& a, const typename Formula::Uniform& u,
                                  const TileBox& box, Shared staged, int first,
                                  const Floats2& sums) {
    table.take_head(a, u);
    const long long next = sums.y != 0 ? element(a, u, box, staged, first + 1) : -1;
    const long long one = sums.x != 0 ? element(a, u, box, staged, first) : next;
    const bool apart = any_in_warp(one != next);
    table.put_together(a, one, apart ? sums.x : sums.x + sums.y);
    if (apart) table.put_together(a, next, sums.y);
    sync_warp();
  }
  FOVEA_DEVICE void flush(const Arguments& a, const typename Formula::Uniform& u, Team team) {
    table.take_head(a, u);
    table.flush(a, team);
  }

 private:
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

// Gradients of captured tensors whose elements change with k - q alone and to which every score
// adds its own gradient: the warps of backward_beside.h sum dS along its diagonals.
#pragma once

#include "../captured_table.h"
#include "../tile_values.h"
#include "backward_shape.h"

namespace fovea::device {

// Tables of distances often have one element for all that are far. If all diagonals of a tile add
// to the same one, what each lane has added up of its scores is enough, and nobody reads the tile.
// (With T5's 32 buckets that is so for all but three tiles in each row of tiles.)
template <class Config>
inline constexpr bool lanes_add_up = Config::Terms::one_diagonal && Formula::diagonal_words > 0 &&
                                     HopperBackwardShape<Config>::keys == backward_keys;

// Sums of dS's tile, [key][query], along its diagonals k - q = -64 to 127, or to 63 if it has 64
// keys. The tile has 16 x 8 or 8 x 8 blocks of 8 x 8 elements: those with the same i - j are added
// up element by element, which leaves eight numbers for each diagonal, one for each row of a block.
// These wait in shared memory for the threads that add them up. (The matrix units could do all of
// it, but mma beside wgmma takes some 190 cycles. Measured on an H200.)
template <class Config>
class DiagonalSums {
  using Shape = HopperBackwardShape<Config>;
  using Element = typename Config::Element;
  static constexpr int key_blocks = Shape::keys / 8, diagonals = Shape::queries + Shape::keys;
  static constexpr int rows = 8, stride = diagonals + 8;  // of the eight; few banks are asked twice
  static_assert(backward_diagonal_bytes(Shape::keys) ==
                4 * rows * stride + backward_lane_sum_bytes(Shape::keys));

 public:
  // By all threads of a team; a barrier must follow.
  FOVEA_DEVICE static void begin(Team team) {
    FOVEA_NO_UNROLL for (int i = team.thread; i < rows * stride; i += team.threads)
        store_shared(at(0, i), 0.0f);
  }

  // By three warps, between barriers. Blocks (i, j) with i - j = distance, and those with i - j =
  // distance - key_blocks behind them, are eight together.
  FOVEA_DEVICE static void add_up(Shared ds, Team team) {
    const int lane = team.thread % 32;
    FOVEA_NO_UNROLL for (int distance = team.thread / 32; distance < key_blocks; distance += 3) {
      Floats2 sums{0, 0};
      FOVEA_UNROLL for (int four = 0; four < 2; ++four) {
        unsigned blocks[4];
        load_matrices(blocks, row_of_block(ds, lane, distance, 4 * four + lane / 8));
        FOVEA_UNROLL for (int b = 0; b < 4; ++b) {
          if (distance + 4 * four + b == key_blocks) {
            store(lane, distance, sums);
            sums = {0, 0};
          }
          sums.x += to_float(Element{}, static_cast<unsigned short>(blocks[b]));
          sums.y += to_float(Element{}, static_cast<unsigned short>(blocks[b] >> 16));
        }
      }
      store(lane, distance > key_blocks - 8 ? distance - key_blocks : distance, sums);
    }
    sync_warp();
  }

  // Where a thread that has scores leaves what they add up to; by places of dS.
  FOVEA_DEVICE static Shared lane_sum(int stage, int thread) {
    return at(rows, 0) + 4 * (stage * backward_key_threads + thread);
  }

  // Between the numbers is room for what each warp says of a step; two steps may be under way.
  FOVEA_DEVICE static Shared note(int step, int warp) { return at(step % 2, diagonals + 2 * warp); }

  // Whether thread number i of 96 has diagonals; the same for all threads of a warp.
  FOVEA_DEVICE static bool has(int i) { return diagonals == 2 * 96 || 2 * i < diagonals; }
  // The first of the two that it has.
  FOVEA_DEVICE static int first_of(int i) { return 2 * i - backward_queries; }
  // The sums of that one and the next, after a barrier.
  FOVEA_DEVICE static Floats2 two(int i) {
    Floats2 sums{0, 0};
    FOVEA_UNROLL for (int row = 0; row < rows; ++row) {
      const auto more = load_shared<Floats2>(at(row, 2 * i));
      sums.x += more.x, sums.y += more.y;
    }
    return sums;
  }

 private:
  FOVEA_DEVICE static Shared at(int row, int i) {
    return Shape::at.captured + 4 * (row * stride + i);
  }

  // What this lane tells load_matrices: of block j of a distance.
  FOVEA_DEVICE static Shared row_of_block(Shared ds, int lane, int distance, int j) {
    const int i = (distance + j) % key_blocks, row = lane % 8;
    return ds + (8 * i + row) * Shape::row_bytes + ((j ^ row) << 4);
  }
  // A lane has two neighbours of a row of a block.
  FOVEA_DEVICE static void store(int lane, int distance, const Floats2& sums) {
    const int row = lane / 4, i = backward_queries + 8 * distance + row - lane % 4 * 2;
    store_shared(at(row, i), sums.x);
    store_shared(at(row, i - 1), sums.y);
  }
};

constexpr long long several_elements = -2;  // -1 is an element outside of the tensor

template <class Term, class Sums, int place, int room>
struct DiagonalTerm {
  SharedTable<Term, Sums, room> table;
  long long elements[2];  // that a thread's diagonals add to

  FOVEA_DEVICE void begin(Team team) {
    table.begin(HopperBackwardShape<Config>::at.captured + place, team);
  }
  // Of the diagonals k - q = first and the next of a tile; the very first has no scores. `staged`:
  // what the formula has for the diagonals.
  FOVEA_DEVICE void find_elements(const Arguments& a, const typename Formula::Uniform& u,
                                  const TileBox& box, Shared staged, int first) {
    elements[1] = element(a, u, box, staged, first + 1);
    elements[0] = first == -backward_queries ? elements[1] : element(a, u, box, staged, first);
  }
  // The element that all diagonals of this warp add to, or several_elements.
  FOVEA_DEVICE long long common_element() const {
    const long long first = shuffle(elements[0], 0);
    return any_in_warp(elements[0] != first || elements[1] != first) ? several_elements : first;
  }
  // What lanes have of the sum of all diagonals, if these add to the same element.
  FOVEA_DEVICE void add_whole(const Arguments& a, const typename Formula::Uniform& u,
                              long long element, float sum) {
    table.take_head(a, u);
    FOVEA_UNROLL for (int mask = 16; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
    if (lane_index() == 0) table.put(a, element, sum);
    sync_warp();
  }
  // What scores of these diagonals add up to, by each lane of a warp.
  FOVEA_DEVICE void add_diagonals(const Arguments& a, const typename Formula::Uniform& u,
                                  const Floats2& sums) {
    table.take_head(a, u);
    const bool apart = any_in_warp(elements[0] != elements[1]);
    table.put_together(a, elements[0], apart ? sums.x : sums.x + sums.y);
    if (apart) table.put_together(a, elements[1], sums.y);
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
    load_words<count>(staged, Config::rows + Config::columns, difference + Config::rows - 1, words);
    return diagonal_element<Term>(a, u, seen(max(-difference, 0), box.q_first),
                                  seen(max(difference, 0), box.k_first), words);
  }
};

}  // namespace fovea::device

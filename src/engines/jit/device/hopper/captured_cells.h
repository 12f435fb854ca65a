// The gradient of a captured tensor by q and k to which every score adds its own gradient (a bias):
// the warps of backward_beside.h add a step's dS as a whole. The sm_90 form of ../captured_cells.h.
#pragma once

#include "../captured_score.h"
#include "../team.h"
#include "backward_shape.h"

namespace fovea::device {

// Sums are of f32, by atomics.
template <class Term>
struct CellsTerm {
  using Shape = HopperBackwardShape<Config>;
  using Element = typename Config::Element;

  // By three warps. What is not kept is 0 in ds, [key][query].
  FOVEA_DEVICE static void read_cells(const Arguments& a, const typename Formula::Uniform& u,
                                      Shared ds, const TileBox& at, Team team) {
    const long long sums = a.words[Term::word];
    if (sums == 0) return;
    const long long first = element_at<Term>(a, u, at, 0, 0),
                    row_step = element_at<Term>(a, u, at, 1, 0) - first;
    const bool inside = at.q_first >= 0 && at.k_first >= 0 &&
                        static_cast<long long>(at.q_first) + Shape::queries <= Term::rows(a) &&
                        static_cast<long long>(at.k_first) + Shape::keys <= Term::last(a);
    if (!inside || (first | row_step) % 4 != 0) return read_slowly(a, u, ds, at, team);
    float* const to = reinterpret_cast<float*>(sums) + first;
    constexpr int pieces = Shape::keys / 32 * (Shape::queries / 8);
    FOVEA_NO_UNROLL for (int i = team.thread / 32; i < pieces; i += team.threads / 32) {
      add_piece(to + i / 8 * 32, row_step, ds + i / 8 * 32 * Shape::row_bytes, i % 8);
    }
  }

 private:
  // 32 keys x 8 queries. A lane has two keys of four groups of eight; it exchanges some with its
  // neighbour and has four in a row, twice, so that a row of 16 is added to at once.
  FOVEA_DEVICE static void add_piece(float* to, long long row_step, Shared keys, int queries) {
    const int lane = lane_index(), odd = lane % 2;
    unsigned words[4];
    load_matrices_transposed(words, keys + lane * Shape::row_bytes + ((queries ^ lane % 8) << 4));
    float* const row = to + (8 * queries + lane / 4) * row_step + 8 * odd + lane % 4 / 2 * 4;
    FOVEA_UNROLL for (int i = 0; i < 2; ++i) {
      const unsigned own = odd != 0 ? words[2 * i + 1] : words[2 * i];
      const unsigned other = shuffle_xor(odd != 0 ? words[2 * i] : words[2 * i + 1], 1);
      const unsigned low = odd != 0 ? other : own, high = odd != 0 ? own : other;
      add_global(row + 16 * i, Floats4{half(low), half(low >> 16), half(high), half(high >> 16)});
    }
  }
  FOVEA_DEVICE static float half(unsigned x) {
    return to_float(Element{}, static_cast<unsigned short>(x));
  }

  // One by one, if the tile leaves the tensor (then indices are clamped) or rows are not aligned.
  FOVEA_DEVICE static void read_slowly(const Arguments& a, const typename Formula::Uniform& u,
                                       Shared ds, const TileBox& at, Team team) {
    FOVEA_NO_UNROLL
    for (int i = team.thread; i < Shape::queries * Shape::keys; i += team.threads) {
      const int q = i / Shape::keys, k = i % Shape::keys;
      const Shared from = ds + k * Shape::row_bytes + ((q / 8 ^ k % 8) << 4) + q % 8 * 2;
      const float x = half(load_shared<unsigned short>(from));
      if (x != 0) F32Sums::add(a.words[Term::word], element_at<Term>(a, u, at, q, k), x);
    }
    sync_warp();
  }
};

}  // namespace fovea::device

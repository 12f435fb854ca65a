// Gradients of captured tensors t[.., q, .., k] that every score adds its own gradient to: the
// warps of backward_diagonals.h add a step's dS to them.
#pragma once

#include "../captured_score.h"
#include "../tile_values.h"
#include "backward_shape.h"

namespace fovea::device {

template <class Term>
struct CellsTerm {
  FOVEA_DEVICE void begin(Team) {}
  FOVEA_DEVICE void flush(const Arguments&, Team) const {}

  // By three warps. What is not kept is 0 in ds.
  FOVEA_DEVICE void read(const Arguments& a, const typename Formula::Uniform& u, Shared ds,
                         const TileBox& box, Shared) const {
    const long long sums = a.words[Term::word];
    if (sums == 0) return;
    const long long first = element(a, u, box, 0, 0), row_step = element(a, u, box, 1, 0) - first;
    const bool inside = box.q_first >= 0 && box.k_first >= 0 &&
                        static_cast<long long>(box.q_first) + backward_queries <= Term::rows(a) &&
                        static_cast<long long>(box.k_first) + backward_keys <= Term::last(a);
    if (!inside || (first | row_step) % 4 != 0) return read_slowly(a, u, ds, box);
    const int lane = lane_index(), odd = lane % 2;
    float* const to =
        reinterpret_cast<float*>(sums) + first + lane / 4 * row_step + 8 * odd + lane % 4 / 2 * 4;
    // 8 queries and 32 keys at a time, as four matrices one below the other.
    FOVEA_NO_UNROLL for (int i = thread_index() / 32 - first_warp; i < 32; i += 3) {
      const int q = i % 8, k = i / 8 * 32;  // q: of eight groups
      unsigned two[4];  // transposed: keys 2 (lane % 4) and the next of each matrix
      load_matrices_transposed(two, ds + (k + lane) * 128 + ((q ^ lane % 8) << 4));
      add(to + 8 * q * row_step + k, two[0], two[1]);
      add(to + 8 * q * row_step + k + 16, two[2], two[3]);
      sync_warp();
    }
  }

 private:
  static constexpr int first_warp = 13;

  // Pairs of two matrices: even lanes take four keys of the first, odd ones four of the second.
  FOVEA_DEVICE static void add(float* to, unsigned left, unsigned right) {
    const bool odd = lane_index() % 2 != 0;
    const unsigned other = shuffle_xor(odd ? left : right, 1);
    (odd ? left : right) = other;
    if ((left | right) == 0) return;
    const auto value = [](unsigned bits) {
      return to_float(typename Config::Element{}, static_cast<unsigned short>(bits));
    };
    add_global(to, Floats4{value(left), value(left >> 16), value(right), value(right >> 16)});
  }

  FOVEA_DEVICE static long long element(const Arguments& a, const typename Formula::Uniform& u,
                                        const TileBox& box, int query, int key) {
    typename Formula::Row row{};
    typename Formula::Column column{};
    row.q = seen(query, box.q_first);
    column.k = seen(key, box.k_first);
    return element_of<Term>({a, u, row, column, 0, 0, true, 0, 0});
  }

  // One by one, if the tile leaves the tensor (then indices are clamped) or rows are not aligned.
  FOVEA_DEVICE static void read_slowly(const Arguments& a, const typename Formula::Uniform& u,
                                       Shared ds, const TileBox& box) {
    FOVEA_NO_UNROLL for (int i = thread_index() - 32 * first_warp;
                         i < backward_queries * backward_keys; i += 96) {
      const int key = i % backward_keys, query = i / backward_keys;
      const Shared at = ds + key * 128 + (query / 8 ^ key % 8) * 16 + query % 8 * 2;
      const float x = to_float(typename Config::Element{},
                               load_shared<typename Stored<typename Config::Element>::Type>(at));
      if (x != 0) F32Sums::add(a.words[Term::word], element(a, u, box, query, key), x);
    }
    sync_warp();
  }
};

}  // namespace fovea::device

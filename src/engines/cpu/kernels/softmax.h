// From scores to probabilities and, in a backward, to gradients of scores. exp is 2^x by a
// polynomial of degree 5, with an error of 1e-7; several vectors advance together, since one alone
// would wait for its own results.
#pragma once

#include "engines/cpu/kernels/table.h"
#include "engines/cpu/kernels/vec.h"

namespace fovea::cpu::FOVEA_ISA {
namespace {

constexpr float log2_e = 1.44269504f;

// 2^x for x <= 0: 0 below -126.5 and for -inf, NaN for NaN.
FOVEA_INLINE vf exp2_below(vf x) {
  // Adding 1.5 * 2^23 rounds to a whole number and leaves it in the low bits; 127 more make those
  // the exponent of its power of two once they are shifted up.
  constexpr float shifter = 12582912.0f + 127.0f;
  x = max_raw(splat(-127.0f), x);  // the second operand if it is NaN
  const vf shifted = x + shifter;
  const vf f = x - (shifted - shifter);
  vf y = splat(0.0013264727f);
  y = fma(y, f, splat(0.009671513f));
  y = fma(y, f, splat(0.055507336f));
  y = fma(y, f, splat(0.24022242f));
  y = fma(y, f, splat(0.693147f));
  y = fma(y, f, splat(1.0f));
  return y * as_float(as_int(shifted) << 23);
}

// The same for any x: inf above 128.
FOVEA_INLINE vf exp2_of(vf x) { return exp2_below(min_raw(splat(128.0f), x)); }

constexpr float minus_infinity = -__builtin_inff();

// The bits of W columns that begin at column c.
FOVEA_INLINE uint32_t bits_at(const uint64_t* words, int c) {
  return static_cast<uint32_t>(words[c / 64] >> (c % 64));
}

FOVEA_INLINE float* score_at(const Panels& scores, int row, int c) {
  return scores.data + (c / panel_width * scores.rows + row) * panel_width + c % panel_width;
}

// Calls four(at, c) for every four vectors of a row of a tile, and rest(at, c, count) for those
// that are left, if any. What lies in a column meets the same of the four sums in either.
template <class Four, class Rest>
FOVEA_INLINE void for_vectors(const SoftmaxTile& tile, int row, const Four& four,
                              const Rest& rest) {
  static_assert(panel_width % (4 * W) == 0);
  float* at = tile.scores.data + int64_t{row} * panel_width;
  const int64_t panel = tile.scores.rows * panel_width;
  int c = 0;
  for (; c + panel_width <= tile.columns; c += panel_width, at += panel) {
    for (int v = 0; v < panel_width; v += 4 * W) four(at + v, c + v);
  }
  for (; c + 4 * W <= tile.columns; c += 4 * W, at += 4 * W) four(at, c);
  if (c < tile.columns) rest(at, c, (tile.columns - c + W - 1) / W);
}

// Lane i is the maximum, or the sum, of all lanes of x[i]: two halves of two vectors become one
// vector, until one is left.
struct Larger {
  FOVEA_INLINE_MEMBER static vf of(vf a, vf b) { return max_raw(a, b); }
};
struct Sum {
  FOVEA_INLINE_MEMBER static vf of(vf a, vf b) { return a + b; }
};
template <class Combine, int step>
FOVEA_INLINE void fold_halves(vf (&x)[W]) {
  _Pragma("GCC unroll 8") for (int i = 0; i < step; ++i) {
    vf a = x[i], b = x[i + step];
    exchange_lanes<step>(a, b);
    x[i] = Combine::of(a, b);
  }
}
template <class Combine>
FOVEA_INLINE vf fold_rows(vf (&x)[W]) {
  if constexpr (W >= 16) fold_halves<Combine, 8>(x);
  if constexpr (W >= 8) fold_halves<Combine, 4>(x);
  fold_halves<Combine, 2>(x);
  fold_halves<Combine, 1>(x);
  return x[0];
}

// The largest kept scores of a row, by lane; those that are not kept become -inf.
template <bool masked>
FOVEA_INLINE vf mask_and_find_max(const SoftmaxTile& tile, int row) {
  vf most[4];
  for (int v = 0; v < 4; ++v) most[v] = splat(minus_infinity);
  const uint64_t* const keep = masked ? tile.keep + int64_t{row} * tile.keep_words : nullptr;
  const auto look_at = [&](float* at, int c, vf& largest) __attribute__((always_inline)) {
    vf s = load(at);
    if constexpr (masked) {
      s = select_bits(bits_at(keep, c), s, splat(minus_infinity));
      store(at, s);
    }
    largest = max_raw(largest, s);  // a NaN passes now and shows in the sum
  };
  for_vectors(
      tile, row,
      [&](float* at, int c) __attribute__((always_inline)) {
        _Pragma("GCC unroll 4") for (int v = 0; v < 4; ++v) {
          look_at(at + v * W, c + v * W, most[v]);
        }
      },
      [&](float* at, int c, int count) __attribute__((always_inline)) {
        _Pragma("GCC unroll 4") for (int v = 0; v < 4; ++v) {
          if (v < count) look_at(at + v * W, c + v * W, most[v]);
        }
      });
  return max_raw(max_raw(most[0], most[1]), max_raw(most[2], most[3]));
}

// 2^(s log2 e + shift) in place; their sums, by lane.
FOVEA_INLINE vf exponentials(const SoftmaxTile& tile, int row, vf shift) {
  vf sum_0{}, sum_1{};
  for_vectors(
      tile, row,
      [&](float* at, int) __attribute__((always_inline)) {
        vf p[4];
        _Pragma("GCC unroll 4") for (int v = 0; v < 4; ++v) {
          p[v] = exp2_below(fma(load(at + v * W), splat(log2_e), shift));
        }
        _Pragma("GCC unroll 4") for (int v = 0; v < 4; ++v) store(at + v * W, p[v]);
        sum_0 += p[0] + p[1];
        sum_1 += p[2] + p[3];
      },
      [&](float* at, int, int count) __attribute__((always_inline)) {
        vf p[4] = {};
        _Pragma("GCC unroll 4") for (int v = 0; v < 4; ++v) {
          if (v >= count) break;
          p[v] = exp2_below(fma(load(at + v * W), splat(log2_e), shift));
          store(at + v * W, p[v]);
        }
        sum_0 += p[0] + p[1];
        sum_1 += p[2] + p[3];
      });
  return sum_0 + sum_1;
}

// What the exponents of some rows of a tile are relative to, and how far their references moved up
// to the largest score so far: less than 0.
struct References {
  vf base, moved;
};
FOVEA_INLINE References move_references(const SoftmaxTile& tile, int first, int count, vf most) {
  const vf old_max = load_first(tile.row_max + first, count);
  const vf old_reference = load_first(tile.reference + first, count);
  const vf new_max = most <= old_max ? old_max : most;  // a NaN stays
  const vf top = most * log2_e;
  const vf reference = top > old_reference ? top : old_reference;
  store_first(tile.row_max + first, new_max, count);
  store_first(tile.reference + first, reference, count);
  return {reference == minus_infinity ? vf{} : reference,
          reference == old_reference ? vf{} : old_reference - reference};
}

// With shifts, references need not be floats. The exponents are relative to one all the same, so
// that nothing is rounded in the subtraction; what that rounds off the reference goes into `moved`.
// A row that keeps nothing of the tile must stay as it is: whether this is called for it depends on
// the rows beside it, which must not change its bits.
FOVEA_INLINE float move_shifted(const SoftmaxTile& tile, int row, float most, float& moved) {
  constexpr double log2_e_exactly = 1.4426950408889634;
  moved = 0;
  if (most == minus_infinity) return 0;
  const double shift = tile.shift[row], largest = static_cast<double>(most) + shift;
  if (!(largest <= tile.shifted_max[row])) tile.shifted_max[row] = largest;
  const double before = tile.shifted_reference[row], here = shift * log2_e_exactly;
  const double top = static_cast<double>(most) * static_cast<double>(log2_e) + here;
  const double target = top > before ? top : before;
  if (target == static_cast<double>(minus_infinity)) return 0;
  const float base = static_cast<float>(target - here);
  const double after = static_cast<double>(base) + here;
  tile.shifted_reference[row] = after;
  moved = static_cast<float>(before - after);
  return base;
}
FOVEA_INLINE References move_shifted_references(const SoftmaxTile& tile, int first, int count,
                                                vf most) {
  References out{};
  for (int i = 0; i < count; ++i) {
    float moved;
    out.base[i] = move_shifted(tile, first + i, most[i], moved);
    out.moved[i] = moved;
  }
  return out;
}

// The references of W rows from `first` on, or of those that are left: one row is one lane.
FOVEA_INLINE References find_references(const SoftmaxTile& tile, int first, vf (&largest)[W]) {
  const int count = tile.last - first < W ? tile.last - first : W;
  const vf most = fold_rows<Larger>(largest);
  return tile.shift == nullptr ? move_references(tile, first, count, most)
                               : move_shifted_references(tile, first, count, most);
}

template <bool masked>
FOVEA_INLINE vf largest_of(const SoftmaxTile& tile, int row) {
  return row < tile.last ? mask_and_find_max<masked>(tile, row) : splat(minus_infinity);
}

// Between the exponentials of W rows the next ones are searched for their largest scores: one is
// bound by multiply-adds, the other by loads.
template <bool masked>
void softmax_rows(const SoftmaxTile& tile) {
  vf largest[W], sum[W];
  for (int i = 0; i < W; ++i) largest[i] = largest_of<masked>(tile, tile.first + i);
  for (int first = tile.first; first < tile.last; first += W) {
    const int count = tile.last - first < W ? tile.last - first : W;
    const References here = find_references(tile, first, largest);
    float shift[W];
    store(shift, -here.base);
    for (int i = 0; i < W; ++i) {
      largest[i] = largest_of<masked>(tile, first + W + i);
      sum[i] = i < count ? exponentials(tile, first + i, splat(shift[i])) : vf{};
    }
    const vf sums = fold_rows<Sum>(sum), factor = exp2_of(here.moved);
    store_first(tile.rescale + first, factor, count);
    store_first(tile.row_sum + first, fma(load_first(tile.row_sum + first, count), factor, sums),
                count);
  }
}

void softmax(const SoftmaxTile& tile) {
  if (tile.keep != nullptr) return softmax_rows<true>(tile);
  softmax_rows<false>(tile);
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_ISA

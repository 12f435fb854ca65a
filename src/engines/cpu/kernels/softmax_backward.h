// From scores, lse and dP to P and dS, one strip at a time; and values of formulas laid out as
// strips.
#pragma once

#include "engines/cpu/kernels/softmax.h"
#include "engines/cpu/kernels/table.h"
#include "engines/cpu/kernels/vec.h"

namespace fovea::cpu::FOVEA_ISA {
namespace {

// What is the same for a row. lse comes as what a float holds of it and what that leaves, times
// -log2 e.
struct RowTerms {
  vf lse, rest, term;
};
FOVEA_INLINE RowTerms terms_of(const SoftmaxBackward& x, int row) {
  const float lse = static_cast<float>(x.lse[row]);
  const double rest = x.lse[row] - static_cast<double>(lse);  // NaN for infinities, as it should
  return {splat(lse), splat(static_cast<float>(rest) * -log2_e), splat(x.row_term[row])};
}

// One vector of p and grad. Returns which of its scores are alive.
template <bool masked, bool dropped>
FOVEA_INLINE uint32_t differentiate(const SoftmaxBackward& x, int row, int c, const RowTerms& of) {
  const int at = row * panel_width + c;
  const vf s = load(x.scores + at);
  Lanes live = lanes_where(s != minus_infinity);
  if constexpr (masked) {
    live &= lanes_of_bits(bits_at(x.keep + int64_t{row} * x.keep_words, x.keep_shift + c));
  }
  const vf p = exp2_of(fma(s - of.lse, splat(log2_e), of.rest));
  vf kept = p, dp = load(x.grad_p + at);
  if constexpr (dropped) {
    const uint32_t bits = bits_at(x.drop + int64_t{row} * x.keep_words, x.keep_shift + c);
    const Lanes stays = lanes_of_bits(bits);
    kept = only(stays, kept * x.drop_scale);
    dp = only(stays, dp * x.drop_scale);
  }
  store(x.p + at, only(live, kept));
  store(x.grad + at, only(live, p * (dp + of.term)));
  return bits_of_lanes(live);
}

FOVEA_INLINE void clear_row(const SoftmaxBackward& x, int row) {
  for (int c = 0; c < x.columns; c += W) {
    store(x.p + row * panel_width + c, vf{});
    store(x.grad + row * panel_width + c, vf{});
  }
  x.live[row] = 0;
}

template <bool masked, bool dropped>
void softmax_backward_rows(const SoftmaxBackward& x) {
  constexpr uint64_t all = W == 64 ? ~uint64_t{0} : (uint64_t{1} << W) - 1;
  for (int row = 0; row < x.rows; ++row) {
    if (x.lse[row] == static_cast<double>(minus_infinity)) {
      clear_row(x, row);
      continue;
    }
    const RowTerms terms = terms_of(x, row);
    uint64_t live = 0;
    _Pragma("GCC unroll 4") for (int c = 0; c < x.columns; c += W) {
      live |= (differentiate<masked, dropped>(x, row, c, terms) & all) << c;
    }
    x.live[row] = live;
  }
}

void softmax_backward(const SoftmaxBackward& x) {
  const bool masked = x.keep != nullptr, dropped = x.drop != nullptr;
  if (masked && dropped) return softmax_backward_rows<true, true>(x);
  if (masked) return softmax_backward_rows<true, false>(x);
  if (dropped) return softmax_backward_rows<false, true>(x);
  softmax_backward_rows<false, false>(x);
}

void spread(const StripValue& value, int rows, int columns, const uint64_t* live, float* to) {
  const StripValue from = value;  // a copy of our own, which no store can change
  for (int row = 0; row < rows; ++row) {
    for (int c = 0; c < columns; c += W) {
      const float* const at = from.f32() + row * from.row_step + c * from.column_step;
      vf x = from.column_step == 0 ? splat(*at) : load(at);
      if (live != nullptr) x = select_bits(static_cast<uint32_t>(live[row] >> c), x, vf{});
      store(to + row * panel_width + c, x);
    }
  }
}

void add_rows(const float* x, int rows, int columns, const StripValue& factor, float* sums) {
  const bool by_column = factor.column_step != 0;
  for (int row = 0; row < rows; ++row) {
    const float* const of_row = x + row * panel_width;
    const float* const at = factor.f32() + row * factor.row_step;
    const vf same = by_column ? vf{} : splat(*at);
    vf sum = load(sums + row * W);
    _Pragma("GCC unroll 4") for (int c = 0; c < columns; c += W) {
      const vf a = load(of_row + c), b = by_column ? load(at + c) : same;
      sum = sum + only(lanes_where(a != 0.0f), a * b);
    }
    store(sums + row * W, sum);
  }
}

void add_two_rows(const float* x, const float* y, int rows, int columns, float* of_x, float* of_y) {
  for (int row = 0; row < rows; ++row) {
    vf a = load(of_x + row * W), b = load(of_y + row * W);
    _Pragma("GCC unroll 4") for (int c = 0; c < columns; c += W) {
      a = a + load(x + row * panel_width + c);
      b = b + load(y + row * panel_width + c);
    }
    store(of_x + row * W, a);
    store(of_y + row * W, b);
  }
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_ISA

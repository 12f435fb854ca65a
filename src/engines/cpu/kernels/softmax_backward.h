// From scores, lse and dP to P and dS, one strip at a time; and values of formulas laid out as
// strips.
#pragma once

#include "engines/cpu/kernels/softmax.h"
#include "engines/cpu/kernels/table.h"
#include "engines/cpu/kernels/vec.h"

namespace fovea::cpu::FOVEA_ISA {
namespace {

// One vector of the backward: what p and grad are, and which of its scores are alive.
struct Gradient {
  vf p, grad;
  uint32_t live;
};
// lse comes as what a float holds of it and what that leaves.
struct RowTerms {
  vf lse, lse_rest, term;
};
FOVEA_INLINE Gradient gradient_of(const SoftmaxBackward& x, int row, int c, const RowTerms& of) {
  const int at = row * panel_width + c;
  const vf s = load(x.scores + at);
  Gradient out;
  out.live = bits_of(s != minus_infinity);
  if (x.keep != nullptr) {
    out.live &= bits_at(x.keep + int64_t{row} * x.keep_words, x.keep_shift + c);
  }
  const vf p = exp2_of(((s - of.lse) - of.lse_rest) * log2_e);
  vf kept = p, dp = load(x.grad_p + at);
  if (x.drop != nullptr) {
    const uint32_t bits = bits_at(x.drop + int64_t{row} * x.keep_words, x.keep_shift + c);
    kept = select_bits(bits, kept * x.drop_scale, vf{});
    dp = select_bits(bits, dp * x.drop_scale, vf{});
  }
  out.p = select_bits(out.live, kept, vf{});
  out.grad = select_bits(out.live, p * (dp + of.term), vf{});
  return out;
}

void softmax_backward(const SoftmaxBackward& x) {
  constexpr uint64_t all = W == 64 ? ~uint64_t{0} : (uint64_t{1} << W) - 1;
  for (int row = 0; row < x.rows; ++row) {
    const bool dead = x.lse[row] == static_cast<double>(minus_infinity);
    const float lse = static_cast<float>(x.lse[row]);
    const double rest = x.lse[row] - static_cast<double>(lse);  // NaN for infinities, as it should
    const RowTerms terms{splat(lse), splat(static_cast<float>(rest)), splat(x.row_term[row])};
    uint64_t live = 0;
    for (int c = 0; c < x.columns; c += W) {
      Gradient g{};
      if (!dead) g = gradient_of(x, row, c, terms);
      store(x.p + row * panel_width + c, g.p);
      store(x.grad + row * panel_width + c, g.grad);
      live |= (g.live & all) << c;
    }
    x.live[row] = live;
  }
}

void spread(const float* from, int row_step, int column_step, int rows, int columns,
            const uint64_t* live, float* to) {
  for (int row = 0; row < rows; ++row) {
    for (int c = 0; c < columns; c += W) {
      const float* const at = from + row * row_step + c * column_step;
      vf x = column_step == 0 ? splat(*at) : load(at);
      if (live != nullptr) x = select_bits(static_cast<uint32_t>(live[row] >> c), x, vf{});
      store(to + row * panel_width + c, x);
    }
  }
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_ISA

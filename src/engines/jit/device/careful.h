// Computes rows again, slowly and exactly as attention is defined: masked keys and values are not
// read at all. The tiled kernels multiply them by 0, which turns a NaN or an infinity there into
// NaN; they call this for rows in which a NaN has appeared.
#pragma once

#include "dropout.h"
#include "element.h"
#include "formula.h"
#include "row_base.h"
#include "sequence.h"
#include "softmax.h"

namespace fovea::device {

struct CarefulHead {
  int b, h;
  Sequence s;
  Head head;
};

FOVEA_DEVICE float sum_over_warp(float x) {
  FOVEA_UNROLL for (int mask = 16; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
  return x;
}

template <class Element>
FOVEA_DEVICE float careful_element(const TensorArgument& tensor, int b, int head, long long row,
                                   int i) {
  return read_element<Element>(tensor.data, b * tensor.batch + head * tensor.head +
                                                row * tensor.position + i * tensor.feature);
}

// The product of two rows, by a warp.
template <class Left, class Right>
FOVEA_DEVICE float careful_dot(const TensorArgument& x, long long x_at, const TensorArgument& y,
                               long long y_at, int count) {
  float sum = 0;
  FOVEA_NO_UNROLL for (int i = lane_index(); i < count; i += 32) {
    sum = fma_rn(read_element<Left>(x.data, x_at + i * x.feature),
                 read_element<Right>(y.data, y_at + i * y.feature), sum);
  }
  return sum_over_warp(sum);
}

FOVEA_DEVICE long long row_at(const TensorArgument& t, int b, int head, long long row) {
  return b * t.batch + head * t.head + row * t.position;
}

// The modified score at positions (q, k) of the sequence, by a warp; -inf: not kept, nothing read.
struct CarefulScore {
  float plain;
  double modified;
};
template <class Config>
FOVEA_DEVICE CarefulScore careful_score(const Arguments& a, const CarefulHead& at,
                                        const typename Formula::Uniform& u, int q, int k) {
  const CallArguments& call = a.call;
  unsigned row_words[Formula::row_words > 0 ? Formula::row_words : 1];
  unsigned column_words[Formula::column_words > 0 ? Formula::column_words : 1];
  const int seen_q = seen(q, at.s.q_offset), seen_k = seen(k, at.s.k_offset);
  if constexpr (Formula::row_words > 0) Formula::make_row(a, u, seen_q, row_words);
  if constexpr (Formula::column_words > 0) Formula::make_column(a, u, seen_k, column_words);
  const auto row = Formula::row(a, u, seen_q, row_words);
  auto column = Formula::column(a, u, seen_k, column_words);
  Formula::fill_pair(a, u, row, column);
  if (Formula::has_mask && !Formula::keep(a, u, row, column)) return {0, -infinity()};
  const float plain = value_of(call.scale) *
                      careful_dot<typename Config::Element, typename Config::Element>(
                          call.q, row_at(call.q, at.s.b, at.h, at.s.q_first + q), call.k,
                          row_at(call.k, at.s.b, at.h / call.group, at.s.k_first + k), call.d);
  const RowBase base = row_base<Formula>(a, u, row, seen_k);
  return {plain, base.base + near_score<Formula>(a, u, row, column, plain, base, seen_k)};
}

// Features [dv_first, end) of row q of o, by a warp: 32 at a time, since little code matters more
// here than little work.
template <class Config>
FOVEA_DEVICE_CALL void careful_o_row(const Arguments& a, CarefulHead at, int q, float lse,
                                     int dv_first, int end) {
  const CallArguments& call = a.call;
  const auto u = Formula::uniform(a, at.head);
  const Dropout dropout = dropout_of(call, at.head);
  const long long to = row_at(call.o, at.s.b, at.h, at.s.q_first + q);
  FOVEA_NO_UNROLL for (int first = dv_first; first < end; first += 32) {
    const int column = first + lane_index();
    float o = 0;
    FOVEA_NO_UNROLL for (int k = 0; k < at.s.k_length; ++k) {
      const double score = careful_score<Config>(a, at, u, q, k).modified;
      if (score == -infinity()) continue;
      float p = exp2_approx(static_cast<float>(score - lse) * log2_of_e);
      if constexpr (Config::dropout) {
        p *= dropout_keeps(dropout, seen(q, at.s.q_offset), seen(k, at.s.k_offset)) ? dropout.factor
                                                                                    : 0.0f;
      }
      const long long v = row_at(call.v, at.s.b, at.h / call.group, at.s.k_first + k);
      if (column < end) {
        o = fma_rn(
            p, read_element<typename Config::Element>(call.v.data, v + column * call.v.feature), o);
      }
    }
    if (column < end) {
      write_element<typename Config::Output>(call.o.data, to + column * call.o.feature, o);
    }
  }
}

}  // namespace fovea::device

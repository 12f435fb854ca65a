// Computes rows of gradients again in which a NaN has appeared, as careful.h does for the forward:
// masked keys and values are not read at all.
#pragma once

#include "backward_place.h"
#include "careful.h"

namespace fovea::device {

// What the score at positions (q, k) adds: p, after dropout, to dV and ds to dQ and dK.
struct CarefulGradient {
  bool kept;
  float p, ds;
};

// By a warp. Nothing of keys and values is read if the score is not kept.
template <class Config>
FOVEA_DEVICE CarefulGradient careful_gradient(const Arguments& a, const CarefulHead& at,
                                              const typename Formula::Uniform& u, int q, int k) {
  using Element = typename Config::Element;
  using GradO = typename Config::GradO;
  const CallArguments& call = a.call;
  const long long number = row_number(call, at.s, at.h, at.s.q_first + q);
  const float lse = call.lse[number];
  if (lse == -infinity()) return {false, 0, 0};
  const CarefulScore score = careful_score<Config>(a, at, u, q, k);
  if (score.modified == -infinity()) return {false, 0, 0};
  const float p = exp2_approx(static_cast<float>(score.modified - lse) * log2_of_e);
  const int seen_q = seen(q, at.s.q_offset), seen_k = seen(k, at.s.k_offset);
  float factor = 1;
  if constexpr (Config::dropout) {
    const Dropout dropout = dropout_of(call, at.head);
    factor = dropout_keeps(dropout, seen_q, seen_k) ? dropout.factor : 0.0f;
  }
  const float to_p = careful_dot<GradO, Element>(
      call.grad_o, row_at(call.grad_o, at.s.b, at.h, at.s.q_first + q), call.v,
      row_at(call.v, at.s.b, at.h / call.group, at.s.k_first + k), call.dv);
  const float grad = p * (factor * to_p - call.delta[number]);
  if constexpr (!Formula::has_mod) return {true, factor * p, grad};
  unsigned row_words[Formula::row_words > 0 ? Formula::row_words : 1];
  unsigned column_words[Formula::column_words > 0 ? Formula::column_words : 1];
  if constexpr (Formula::row_words > 0) Formula::make_row(a, u, seen_q, row_words);
  if constexpr (Formula::column_words > 0) Formula::make_column(a, u, seen_k, column_words);
  const auto row = Formula::row(a, u, seen_q, row_words);
  auto column = Formula::column(a, u, seen_k, column_words);
  Formula::fill_pair(a, u, row, column);
  return {true, factor * p, Formula::gradient(a, u, row, column, score.plain, grad)};
}

// A row of sums, spread over a warp.
template <int features>
struct CarefulRow {
  static constexpr int most = (features + 31) / 32;
  float sum[most] = {};

  template <class Element>
  FOVEA_DEVICE void add(float factor, const TensorArgument& from, long long at, int count) {
    FOVEA_UNROLL for (int i = 0; i < most; ++i) {
      const int column = 32 * i + lane_index();
      if (column >= count) continue;
      sum[i] = fma_rn(factor, read_element<Element>(from.data, at + column * from.feature), sum[i]);
    }
  }
  template <class Element>
  FOVEA_DEVICE void write(float factor, const TensorArgument& to, long long at, int count) const {
    FOVEA_UNROLL for (int i = 0; i < most; ++i) {
      const int column = 32 * i + lane_index();
      if (column < count) {
        write_element<Element>(to.data, at + column * to.feature, sum[i] * factor);
      }
    }
  }
};

// Whether a row that was written has a NaN, as a warp sees it.
template <class Element>
FOVEA_DEVICE bool row_has_nan(const TensorArgument& tensor, long long at, int count) {
  bool nan = false;
  FOVEA_NO_UNROLL for (int i = lane_index(); i < count; i += 32) {
    const float x = read_element<Element>(tensor.data, at + i * tensor.feature);
    nan |= x != x;
  }
  return any_in_warp(nan);
}

// dK and dV of key k of head g.
template <class Config>
FOVEA_DEVICE_CALL void careful_key_row(const Arguments& a, int b, int g, Sequence s, int k) {
  using Element = typename Config::Element;
  const CallArguments& call = a.call;
  CarefulRow<Config::d> grad_k;
  CarefulRow<Config::dv> grad_v;
  FOVEA_NO_UNROLL for (int h = g * call.group; h < (g + 1) * call.group; ++h) {
    const CarefulHead at{b, h, s, head_of(call, s, b, h)};
    const auto u = Formula::uniform(a, at.head);
    FOVEA_NO_UNROLL for (int q = 0; q < s.q_length; ++q) {
      const CarefulGradient x = careful_gradient<Config>(a, at, u, q, k);
      if (!x.kept) continue;
      grad_k.template add<Element>(x.ds, call.q, row_at(call.q, s.b, h, s.q_first + q), call.d);
      grad_v.template add<typename Config::GradO>(
          x.p, call.grad_o, row_at(call.grad_o, s.b, h, s.q_first + q), call.dv);
    }
  }
  if constexpr (Config::want_k) {
    grad_k.template write<typename Config::GradK>(
        value_of(call.scale), call.grad_k, row_at(call.grad_k, s.b, g, s.k_first + k), call.d);
  }
  if constexpr (Config::want_v) {
    grad_v.template write<typename Config::GradV>(
        1.0f, call.grad_v, row_at(call.grad_v, s.b, g, s.k_first + k), call.dv);
  }
}

// Rows of dK and dV of a block's keys, as far as they have a NaN, shared among its warps. A barrier
// must have been passed since they were written.
template <class Config>
FOVEA_DEVICE_CALL void mend_keys(const Arguments& a, BlockPlace here, int keys) {
  const CallArguments& call = a.call;
  const Sequence& s = here.s;
  const int g = here.first_head / call.group;
  FOVEA_NO_UNROLL for (int i = thread_index() / 32; i < keys; i += block_threads() / 32) {
    const int k = here.k_first + i;
    if (k >= s.k_length) break;
    bool nan = false;
    if constexpr (Config::want_k) {
      nan = row_has_nan<typename Config::GradK>(call.grad_k,
                                                row_at(call.grad_k, s.b, g, s.k_first + k), call.d);
    }
    if constexpr (Config::want_v) {
      nan = nan || row_has_nan<typename Config::GradV>(
                       call.grad_v, row_at(call.grad_v, s.b, g, s.k_first + k), call.dv);
    }
    if (nan) careful_key_row<Config>(a, here.b, g, s, k);
  }
}

// dQ of query q of head h.
template <class Config>
FOVEA_DEVICE_CALL void careful_query_row(const Arguments& a, int b, int h, Sequence s, int q) {
  const CallArguments& call = a.call;
  const CarefulHead at{b, h, s, head_of(call, s, b, h)};
  const auto u = Formula::uniform(a, at.head);
  CarefulRow<Config::d> grad_q;
  FOVEA_NO_UNROLL for (int k = 0; k < s.k_length; ++k) {
    const CarefulGradient x = careful_gradient<Config>(a, at, u, q, k);
    if (!x.kept) continue;
    grad_q.template add<typename Config::Element>(
        x.ds, call.k, row_at(call.k, s.b, h / call.group, s.k_first + k), call.d);
  }
  grad_q.template write<typename Config::GradQ>(value_of(call.scale), call.grad_q,
                                                row_at(call.grad_q, s.b, h, s.q_first + q), call.d);
}

// Rows of dQ from position `first` on, as far as they have a NaN, shared among the block's warps.
// A barrier must have been passed since they were written.
template <class Config>
FOVEA_DEVICE_CALL void mend_queries(const Arguments& a, int b, int h, Sequence s, int first) {
  FOVEA_NO_UNROLL for (int i = thread_index() / 32; i < Config::rows; i += Config::threads / 32) {
    const int q = first + i;
    if (q >= s.q_length) break;
    const long long at = row_at(a.call.grad_q, s.b, h, s.q_first + q);
    if (row_has_nan<typename Config::GradQ>(a.call.grad_q, at, a.call.d)) {
      careful_query_row<Config>(a, b, h, s, q);
    }
  }
}

}  // namespace fovea::device

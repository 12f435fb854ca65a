// After hopper/backward.h: dQ from its f32 sums, in its type and strides; and rows of dK and dV in
// which a NaN has appeared, computed again. Grid: query tiles x h x sequences, in one row, query
// tiles fastest; after them key tiles x hkv x sequences.
#pragma once

#include "../captured_write.h"
#include "../careful_backward.h"
#include "backward_layout.h"
#include "row_pieces.h"

namespace fovea::device {

// What the warps of backward_queries.h have added up: 16 queries x 64 features each. Says whether
// this thread has a NaN.
template <class Config>
FOVEA_DEVICE bool write_query_piece(const CallArguments& call, const Sequence& s, int h, int first,
                                    const float* sums, int piece) {
  using GradQ = typename Config::GradQ;
  const float scale = value_of(call.scale);
  const float* const own = sums + piece * 1024 + 4 * lane_index();
  float x[8][4];
  bool nan = false;
  FOVEA_UNROLL for (int j = 0; j < 8; ++j) {
    Floats4 four{0, 0, 0, 0};
    if (first < s.q_length) four = *reinterpret_cast<const Floats4*>(own + j * 128);
    x[j][0] = four.x, x[j][1] = four.y, x[j][2] = four.z, x[j][3] = four.w;
    FOVEA_UNROLL for (int e = 0; e < 4; ++e) {
      x[j][e] *= scale;
      nan |= x[j][e] != x[j][e];
    }
  }
  const int row = first + piece % 4 * 16, column = piece / 4 * 64;
  const int exist = call.q_starts != nullptr ? s.q_length : call.sq;
  RowsOut to = rows_out<GradQ>(call.grad_q, s.b, h, s.q_first + row, call.d - column);
  to.data = static_cast<typename Stored<GradQ>::Type*>(to.data) + column * call.grad_q.feature;
  write_rows<GradQ>(x, to, s.q_length - row, exist - row);
  return nan;
}

// Rows of dK and dV that have a NaN: it may come from what is masked, times a probability of 0.
template <class Config>
FOVEA_DEVICE void mend_keys(const Arguments& a, int tile) {
  const CallArguments& call = a.call;
  constexpr int keys = Config::columns;
  const int tiles = (call.skv + keys - 1) / keys, head = tile / tiles;
  const int b = head / call.hkv, g = head % call.hkv;
  const Sequence s = sequence_of(call, b);
  const int first = (tile - head * tiles) * keys;
  if (first >= s.k_length) return;
  // Eight warps have had this tile's keys: if it is one of 64, two of them the same.
  constexpr int groups = keys / 16;
  FOVEA_NO_UNROLL for (int group = thread_index() / 32; group < groups;
                       group += Config::threads / 32) {
    const unsigned* const nans = call.key_nans + 8 * static_cast<long long>(tile) + group;
    if ((nans[0] | nans[8 - groups]) == 0) continue;
    const int begin = first + 16 * group;
    FOVEA_NO_UNROLL for (int k = begin; k < begin + 16 && k < s.k_length; ++k) {
      bool nan = false;
      if constexpr (Config::want_k) {
        nan = row_has_nan<typename Config::GradK>(
            call.grad_k, row_at(call.grad_k, s.b, g, s.k_first + k), call.d);
      }
      if constexpr (Config::want_v) {
        nan = nan || row_has_nan<typename Config::GradV>(
                         call.grad_v, row_at(call.grad_v, s.b, g, s.k_first + k), call.dv);
      }
      if (nan) careful_key_row<Config>(a, b, g, s, k);
    }
  }
}

template <class Config>
FOVEA_DEVICE void hopper_backward_finish(const Arguments& a) {
  const CallArguments& call = a.call;
  write_captured<Config::captured_count>(a.words + Config::captured_first);
  const int tiles = (call.sq + Config::rows - 1) / Config::rows, blocks = tiles * call.h * call.b;
  if (block_x() >= blocks) return mend_keys<Config>(a, block_x() - blocks);
  const int first = block_x() % tiles * Config::rows;
  const int h = block_x() / tiles % call.h, b = block_x() / tiles / call.h;
  const Sequence s = sequence_of(call, b);
  const int exist = call.q_starts != nullptr ? s.q_length : call.sq;
  if (first >= exist) return;
  const float* const sums =
      call.grad_q_sum + sum_tile(call, s, b, h, first, Config::rows) * (Config::rows * Config::d);
  bool nan = false;
  FOVEA_UNROLL for (int i = 0; i < Config::d / 64; ++i) {
    nan |= write_query_piece<Config>(call, s, h, first, sums, 4 * i + thread_index() / 32);
  }
  if (any_in_block(nan)) mend_queries<Config>(a, b, h, s, first);
}

}  // namespace fovea::device

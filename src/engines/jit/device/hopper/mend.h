// Rows in which a NaN has turned up, once more: it may come from a value that is masked, times a
// probability of 0. By the warps that multiplied them, when a block has nothing else to do.
#pragma once

#include "../careful.h"
#include "steps.h"

namespace fovea::device {

// The logarithm of the sum of a row's exponentials, as careful.h takes it; -inf: the row is empty.
template <class Config>
FOVEA_DEVICE float careful_lse(const Arguments& a, const CarefulHead& at, int q) {
  const auto u = Formula::uniform(a, at.head);
  const double sink = a.call.sink != nullptr ? a.call.sink[at.h] : -infinity();
  double most = sink, sum = 0;
  bool nan = false;
  FOVEA_NO_UNROLL for (int k = 0; k < at.s.k_length; ++k) {
    const double score = careful_score<Config>(a, at, u, q, k).modified;
    nan |= score != score;
    if (score > most) most = score;
  }
  if (nan) return float_of_bits(0x7fc00000u);
  if (most == -infinity() || most == infinity()) return static_cast<float>(most);
  FOVEA_NO_UNROLL for (int k = 0; k < at.s.k_length; ++k) {
    const double score = careful_score<Config>(a, at, u, q, k).modified;
    sum += exp2_approx(static_cast<float>(score - most) * log2_of_e);
  }
  sum += exp2_approx(static_cast<float>(sink - most) * log2_of_e);
  return static_cast<float>(most + logf(static_cast<float>(sum)));
}

template <class Config>
FOVEA_DEVICE bool row_has_nan(const Call& call, const CarefulHead& at, int q) {
  const long long row = row_at(call.o, at.s.b, at.h, at.s.q_first + q);
  bool nan = false;
  FOVEA_NO_UNROLL for (int i = lane_index(); i < call.dv; i += 32) {
    const float x = read_element<typename Config::Output>(call.o.data, row + i * call.o.feature);
    nan |= x != x;
  }
  return any_in_warp(nan);
}

// Queries [first, first + 16) of a head of every tile that this block took.
template <class Config>
FOVEA_DEVICE void mend_tiles(const Arguments& a, int first, int head) {
  const Call& call = a.call;
  const int tiles = query_tiles<Formula>(call, Config::rows);
  sync_warp();  // what other lanes have written is seen
  FOVEA_NO_UNROLL for (int number = 0; number < tiles; ++number) {
    if (call.taken_tiles[1 + number] != static_cast<unsigned>(block_x()) + 1) continue;
    const QueryTile tile = query_tile<Formula>(call, number, Config::rows);
    const TilePlace place = place_of(call, tile).of_head(head);
    const CarefulHead at{tile.b, place.h, place.s, place.head};
    if (is_decoded(call, place.s)) continue;
    FOVEA_NO_UNROLL for (int q = tile.q0 + first; q < tile.q0 + first + 16; ++q) {
      if (q >= place.s.q_length || !row_has_nan<Config>(call, at, q)) continue;
      const float lse = careful_lse<Config>(a, at, q);
      if (lse == -infinity()) continue;
      careful_o_row<Config>(a, at, q, lse, 0, call.dv);
    }
  }
}

}  // namespace fovea::device

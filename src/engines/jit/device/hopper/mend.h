// Computes rows again in which a NaN has appeared: it may come from a masked value times a
// probability of 0. Done by the warps that multiplied them, when the block has no more tiles.
#pragma once

#include "../careful.h"
#include "steps.h"

namespace fovea::device {

// Row q of o by a warp, 32 features at a time. Each time scores are computed anew, and sums shrink
// when a larger score comes: so the formula is here only once, since compile time matters more here
// than work. A row that is empty stays as it is.
template <class Config>
FOVEA_DEVICE void mend_row(const Arguments& a, const CarefulHead& at, int q) {
  const CallArguments& call = a.call;
  const auto u = Formula::uniform(a, at.head);
  const Dropout dropout = dropout_of(call, at.head);
  const float sink = call.sink != nullptr ? call.sink[at.h] : -infinity();
  const long long to = row_at(call.o, at.s.b, at.h, at.s.q_first + q);
  FOVEA_NO_UNROLL for (int first = 0; first < call.dv; first += 32) {
    const int column = first + lane_index();
    double most = sink;
    float sum = sink == -infinity() ? 0.0f : 1.0f, o = 0;
    FOVEA_NO_UNROLL for (int k = 0; k < at.s.k_length; ++k) {
      const double score = careful_score<Config>(a, at, u, q, k).modified;
      if (score == -infinity()) continue;
      if (score > most) {
        const float shrink = exp2_approx(static_cast<float>(most - score) * log2_of_e);
        sum *= shrink, o *= shrink;
        most = score;
      }
      float p = exp2_approx(static_cast<float>(score - most) * log2_of_e);
      sum += p;
      if constexpr (Config::dropout) {
        const bool stays = dropout_keeps(dropout, seen(q, at.s.q_offset), seen(k, at.s.k_offset));
        p *= stays ? dropout.factor : 0.0f;
      }
      const long long v = row_at(call.v, at.s.b, at.h / call.group, at.s.k_first + k);
      if (column < call.dv) {
        o = fma_rn(
            p, read_element<typename Config::Element>(call.v.data, v + column * call.v.feature), o);
      }
    }
    if (sum != 0 && column < call.dv) {
      write_element<typename Config::Output>(call.o.data, to + column * call.o.feature, o / sum);
    }
  }
}

template <class Config>
FOVEA_DEVICE bool row_has_nan(const CallArguments& call, const CarefulHead& at, int q) {
  const long long row = row_at(call.o, at.s.b, at.h, at.s.q_first + q);
  bool nan = false;
  FOVEA_NO_UNROLL for (int i = lane_index(); i < call.dv; i += 32) {
    const float x = read_element<typename Config::Output>(call.o.data, row + i * call.o.feature);
    nan |= x != x;
  }
  return any_in_warp(nan);
}

// Queries [first, first + 16) of a head of every tile that this block took. A function that is
// called, unlike others of kernels that take maps: only warps that have taken registers come here.
// Inlined behind their loop it makes that spill at head dim 256.
template <class Config>
__attribute__((noinline)) void mend_tiles(const Arguments& a, int first, int head) {
  const CallArguments& call = a.call;
  const int tiles = query_tiles<Formula>(call, Config::rows);
  sync_warp();  // what other lanes have written is seen
  FOVEA_NO_UNROLL for (int number = 0; number < tiles; ++number) {
    if (call.taken_tiles[1 + number] != static_cast<unsigned>(block_x()) + 1) continue;
    const QueryTileOrigin tile = query_tile<Formula>(call, number, Config::rows);
    const TilePlace place = place_of(call, tile).of_head(head);
    const CarefulHead at{tile.b, place.h, place.s, place.head(call)};
    if (is_decoded(call, place.s)) continue;
    FOVEA_NO_UNROLL for (int q = tile.q0 + first; q < tile.q0 + first + 16; ++q) {
      if (q >= place.s.q_length || !row_has_nan<Config>(call, at, q)) continue;
      mend_row<Config>(a, at, q);
    }
  }
}

}  // namespace fovea::device

// The values of a formula that change with k - q alone, computed once for every distance of a
// sequence; kernels for sm_90 read them from here. Computing them between products would take long:
// functions whose results decide something are computed in double, and an instruction in double
// took 300 cycles on an H200 while matrices were multiplied.
#pragma once

#include "arguments.h"
#include "formula.h"
#include "live_tiles.h"
#include "team.h"

namespace fovea::device {

// Of (b, h).
template <class Formula>
FOVEA_DEVICE unsigned* distances_of(const CallArguments& call, int b, int h) {
  return call.distances + (static_cast<long long>(b) * call.h + h) * Formula::diagonal_words *
                              distance_stride(call.sq, call.skv);
}

// A block for 128 distances of a head.
template <class Config>
FOVEA_DEVICE void distances(const Arguments& a) {
  const CallArguments& call = a.call;
  const int count = call.sq + call.skv, blocks = (count + block_threads() - 1) / block_threads();
  const int number = block_x() / blocks, b = number / call.h, h = number % call.h;
  const int i = block_x() % blocks * block_threads() + thread_index();
  if (i >= count) return;
  const Sequence s = sequence_of(call, b);
  const auto uniform = Formula::uniform(a, head_of(call, s, b, h));
  const int distance = i - (call.sq - 1);
  unsigned words[Formula::diagonal_words > 0 ? Formula::diagonal_words : 1];
  Formula::make_diagonal(a, uniform, seen(distance < 0 ? -distance : 0, s.q_offset),
                         seen(distance < 0 ? 0 : distance, s.k_offset), words);
  unsigned* const to = distances_of<Formula>(call, b, h) + distance_place(call.sq, distance);
  const int stride = distance_stride(call.sq, call.skv);
  FOVEA_UNROLL for (int w = 0; w < Formula::diagonal_words; ++w) to[w * stride] = words[w];
}

// Those of a tile's diagonals to shared memory, as tile_values.h lays them out. By all threads of a
// team. Values of diagonals beyond the sequences are undefined, and not used.
template <class Formula, int rows, int columns>
FOVEA_DEVICE void copy_distances(const CallArguments& call, const unsigned* from, int q_first,
                                 int k_first, Shared to, Team team) {
  const int first = distance_place(call.sq, k_first - q_first - rows + 1);
  const int stride = distance_stride(call.sq, call.skv);
  FOVEA_UNROLL for (int w = 0; w < Formula::diagonal_words; ++w) {
    for (int i = team.thread; i < rows + columns; i += team.threads) {
      const int index = min(max(first + i, 0), stride - 1);
      store_shared(to + 4 * (w * (rows + columns) + i), from[w * stride + index]);
    }
  }
}

}  // namespace fovea::device

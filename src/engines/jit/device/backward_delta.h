// Before a backward: delta = dot(dO, O) - dlse of every row, and zeros where backward.h will add up
// dQ and gradients of captured tensors. For hopper/backward.h also what it reads of each row, by
// tiles. Grid: tiles of 16 queries x h x sequences, in one row, tiles fastest.
#pragma once

#include "backward_place.h"
#include "clear.h"
#include "element.h"
#include "hopper/backward_turns.h"

namespace fovea::device {

// One row's features from two tensors, eight lanes to a row.
template <class Config>
FOVEA_DEVICE float row_dot(const CallArguments& call, long long o, long long grad_o) {
  using O = typename Config::O;
  using GradO = typename Config::GradO;
  const int lane = lane_index() % 8;
  float sum = 0;
  if constexpr (bytes_of<O> == 2 && bytes_of<GradO> == 2) {
    if (call.o.copy_bytes == 16 && call.grad_o.copy_bytes == 16 && call.dv % 8 == 0) {
      const auto* const left = static_cast<const unsigned short*>(call.o.data) + o;
      const auto* const right = static_cast<const unsigned short*>(call.grad_o.data) + grad_o;
      FOVEA_UNROLL for (int first = 0; first < Config::dv; first += 64) {
        const int at = first + 8 * lane;
        if (at >= call.dv) break;
        const Words4 x = *reinterpret_cast<const Words4*>(left + at);
        const Words4 y = *reinterpret_cast<const Words4*>(right + at);
        const unsigned xs[4]{x.x, x.y, x.z, x.w}, ys[4]{y.x, y.y, y.z, y.w};
        FOVEA_UNROLL for (int i = 0; i < 4; ++i) {
          sum = fma_rn(to_float(O{}, static_cast<unsigned short>(xs[i])),
                       to_float(GradO{}, static_cast<unsigned short>(ys[i])), sum);
          sum = fma_rn(to_float(O{}, static_cast<unsigned short>(xs[i] >> 16)),
                       to_float(GradO{}, static_cast<unsigned short>(ys[i] >> 16)), sum);
        }
      }
      return sum;
    }
  }
  for (int at = lane; at < call.dv; at += 8) {
    sum = fma_rn(read_element<O>(call.o.data, o + at * call.o.feature),
                 read_element<GradO>(call.grad_o.data, grad_o + at * call.grad_o.feature), sum);
  }
  return sum;
}

// Zeros in a tile of dQ's sums: the part that is as large as these rows. The sequence's last rows
// clear the rest of their tile too, since sums do not lie row by row.
template <class Config>
FOVEA_DEVICE void clear_sums(const CallArguments& call, const Sequence& s, int b, int h,
                             int first) {
  constexpr int rows = Config::rows, d = Config::d;
  float* const sums =
      call.grad_q_sum + sum_tile(call, s, b, h, first / rows * rows, rows) * (rows * d);
  const int from = first % rows * d;
  const int end = first + delta_rows < s.q_length ? from + delta_rows * d : rows * d;
  for (int i = from + 4 * thread_index(); i < end; i += 4 * Config::threads) {
    *reinterpret_cast<Floats4*>(sums + i) = Floats4{0, 0, 0, 0};
  }
}

// What hopper/backward.h adds to a row's scores, in powers of two, and delta. Rows that kept
// nothing and rows behind the sequence have probabilities of 0.
template <class Config>
FOVEA_DEVICE void write_row_terms(const CallArguments& call, long long tile, int row, float lse,
                                  float delta) {
  float* const to = call.row_terms + tile * (2 * Config::rows) + row_term_place(row % Config::rows);
  to[0] = lse == -infinity() ? lse : -lse * log2_of_e;
  to[Config::rows] = delta;
}

template <class Config>
FOVEA_DEVICE void backward_delta(const Arguments& a) {
  const CallArguments& call = a.call;
  clear({call.captured_sums, call.captured_pieces});
  const int tiles = (call.sq + delta_rows - 1) / delta_rows;
  const int first = block_x() % tiles * delta_rows;
  const int h = block_x() / tiles % call.h, b = block_x() / tiles / call.h;
  const Sequence s = sequence_of(call, b);
  if (Config::row_terms != 0 && block_x() == 0 && thread_index() == 0) *call.tile_counter = 0;
  if (first >= s.q_length) return;
  // Zeros are stored first, so that this overlaps with the loads of rows.
  if constexpr (Config::want_q && (Config::row_terms != 0 || !Config::deterministic)) {
    clear_sums<Config>(call, s, b, h, first);
  }
  const long long tile = sum_tile(call, s, b, h, first / Config::rows * Config::rows, Config::rows);
  for (int i = thread_index() / 8; i < delta_rows; i += Config::threads / 8) {
    const int row = first + i;
    const bool exists = row < s.q_length;  // the other lanes only take part in shuffles
    const long long at = s.q_first + (exists ? row : first);
    const long long number = row_number(call, s, h, at);
    const float lse = call.lse[number];
    float sum =
        row_dot<Config>(call, s.b * call.o.batch + h * call.o.head + at * call.o.position,
                        s.b * call.grad_o.batch + h * call.grad_o.head + at * call.grad_o.position);
    FOVEA_UNROLL for (int mask = 4; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
    if (!exists || lane_index() % 8 != 0) continue;
    if constexpr (Config::grad_lse) sum -= call.grad_lse[number];
    // A row that kept nothing adds nothing, whatever dO holds there.
    const float delta = lse == -infinity() ? 0.0f : sum;
    call.delta[number] = delta;
    if constexpr (Config::row_terms != 0) write_row_terms<Config>(call, tile, row, lse, delta);
  }
  if constexpr (Config::row_terms != 0) {
    if (first + delta_rows >= s.q_length) {
      const int end = (first / Config::rows + 1) * Config::rows;
      for (int row = s.q_length + thread_index(); row < end; row += Config::threads) {
        write_row_terms<Config>(call, tile, row, -infinity(), 0);
      }
    }
  }
  if constexpr (Config::row_terms != 0 && Config::deterministic) {
    if (first % Config::rows == 0) QueryTurns<Config::columns>::clear(call, tile);
  }
}

}  // namespace fovea::device

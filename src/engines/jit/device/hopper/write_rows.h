// Writes a warp's 16 rows of results: from sums to outputs, and from registers to global memory, 16
// bytes at a time.
#pragma once

#include "../careful.h"
#include "../element.h"
#include "../softmax.h"
#include "row_pieces.h"
#include "steps.h"

namespace fovea::device {

// What is known of rows lane / 4 and lane / 4 + 8 of the 16.
struct WarpRows {
  float reference[2], sum[2];
  float top[2];  // the true maximum, if it is wanted
  float unit;    // of scores as they are kept: a positive factor that all of a head have
};

// Row `r` of the two that a lane has of sums[n / 8][4]; `to`: where it begins, a multiple of 16
// bytes. By a warp, of which some rows may be left out. Returns whether something is not finite.
template <class Output, int n8>
FOVEA_DEVICE bool write_row_of(const float (&sums)[n8][4], int r, void* to, int columns,
                               bool writes) {
  static_assert(bytes_of<Output> == 2 && n8 % 2 == 0);
  unsigned zeros = 0;
  FOVEA_UNROLL for (int j = 0; j < n8; j += 2) {
    const unsigned first = pack(Output{}, sums[j][2 * r], sums[j][2 * r + 1]);
    const unsigned second = pack(Output{}, sums[j + 1][2 * r], sums[j + 1][2 * r + 1]);
    zeros = add_times_zero(Output{}, add_times_zero(Output{}, zeros, first), second);
    const Words2 words = exchange_in_pair(first, second);
    const int column = 8 * j + exchanged_column();
    if (writes && column < columns) static_cast<Words2*>(to)[column / 4] = words;
  }
  return zeros != 0;
}

// Sums to outputs: the sink joins, o is divided by the sum of its row. `first`: of the 16 rows, in
// the sequence. Returns whether something that is not finite was written.
template <class Config, int n8>
FOVEA_DEVICE bool write_rows(const CallArguments& call, const TilePlace& place, int first,
                             const WarpRows& done, float dropout_factor, float (&o)[n8][4]) {
  using Output = typename Config::Output;
  const bool has_sink = call.sink != nullptr;
  const float sink = has_sink ? call.sink[place.h] : -infinity();
  bool odd = false;
  FOVEA_UNROLL for (int r = 0; r < 2; ++r) {
    float total = done.sum[r];
    total += shuffle_xor(total, 1);
    total += shuffle_xor(total, 2);
    const float from = finite_or_zero(done.reference[r]) * done.unit;
    float joined = total, shift = from, shrink = 1;
    if (has_sink) {
      shift = finite_or_zero(fmaxf(total > 0 ? from : -infinity(), sink));
      shrink = total > 0 ? exp2_approx((from - shift) * log2_of_e) : 1;
      joined = total * shrink + exp2_approx((sink - shift) * log2_of_e);
    }
    const int q = first + lane_index() / 4 + 8 * r;
    const bool inside = q < place.s.q_length, empty = joined == 0 || !inside;
    const float inverse =
        empty ? 0 : shrink * (Config::dropout ? dropout_factor : 1) * reciprocal_approx(joined);
    FOVEA_UNROLL for (int i = 0; i < 2 * n8; ++i) o[i / 2][2 * r + i % 2] *= inverse;
    if (any_in_warp(empty)) {  // 0 even if masked values are NaN
      FOVEA_UNROLL for (int i = 0; i < 2 * n8; ++i) {
        float& value = o[i / 2][2 * r + i % 2];
        value = empty ? 0 : value;
      }
    }
    const bool writes = q < row_end(call, place.s);
    const long long row = place.s.q_first + q;
    if (writes && lane_index() % 4 == 0) {
      const long long number = row_number(call, place.s, place.h, row);
      const float most = total == total ? done.top[r] * done.unit : total;
      if (call.lse != nullptr) {
        call.lse[number] = empty ? -infinity() : fma_rn(log2_approx(joined), ln_of_2, shift);
      }
      if (Config::row_max) call.row_max[number] = inside ? most : -infinity();
    }
    odd |= write_row_of<Output>(o, r,
                                static_cast<typename Stored<Output>::Type*>(call.o.data) +
                                    row_at(call.o, place.s.b, place.h, row),
                                call.dv, writes);
  }
  return odd;
}

}  // namespace fovea::device

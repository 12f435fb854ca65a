// A warp's 16 rows of 16-bit results on their way from registers to global memory, 16 bytes at a
// time.
#pragma once

#include "../element.h"
#include "../primitives.h"

namespace fovea::device {

// The four lanes of a row hold columns 2t, 2t + 1 of each 8. After this, lane t holds those of the
// t-th 8: they exchange words as a 4 x 4 matrix is transposed.
FOVEA_DEVICE void transpose_in_quad(unsigned (&words)[4]) {
  const bool odd = (lane_index() & 1) != 0, high = (lane_index() & 2) != 0;
  unsigned x = shuffle_xor(odd ? words[0] : words[1], 1);
  unsigned y = shuffle_xor(odd ? words[2] : words[3], 1);
  (odd ? words[0] : words[1]) = x;
  (odd ? words[2] : words[3]) = y;
  x = shuffle_xor(high ? words[0] : words[2], 2);
  y = shuffle_xor(high ? words[1] : words[3], 2);
  (high ? words[0] : words[2]) = x;
  (high ? words[1] : words[3]) = y;
}

// Row `r` of the two that a lane has of sums[n / 8][4]; `to`: where it begins, a multiple of 16
// bytes. By a warp, of which some rows may be left out.
template <class Output, int n8>
FOVEA_DEVICE void write_row_of(const float (&sums)[n8][4], int r, void* to, int columns,
                               bool writes) {
  static_assert(bytes_of<Output> == 2 && n8 % 4 == 0);
  FOVEA_UNROLL for (int j = 0; j < n8; j += 4) {
    unsigned words[4];
    FOVEA_UNROLL for (int i = 0; i < 4; ++i) {
      words[i] = pack(Output{}, sums[j + i][2 * r], sums[j + i][2 * r + 1]);
    }
    transpose_in_quad(words);
    const int column = 8 * (j + lane_index() % 4);
    if (writes && column < columns) {
      static_cast<Words4*>(to)[column / 8] = {words[0], words[1], words[2], words[3]};
    }
  }
}

}  // namespace fovea::device

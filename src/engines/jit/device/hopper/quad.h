// Four lanes that have a row of a product between them.
#pragma once

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

}  // namespace fovea::device

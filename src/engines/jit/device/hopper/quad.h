// Four lanes that have a row of a product between them.
#pragma once

#include "../primitives.h"

namespace fovea::device {

// The four lanes of a row hold columns 2t, 2t + 1 of each 8, packed. After this, lane t holds four
// neighbours of two such groups, from exchanged_column() on, and all four lanes 32 bytes in a row.
FOVEA_DEVICE Words2 exchange_in_pair(unsigned first, unsigned second) {
  const bool odd = (lane_index() & 1) != 0;
  const unsigned other = shuffle_xor(odd ? first : second, 1);
  return {odd ? other : first, odd ? second : other};
}
FOVEA_DEVICE int exchanged_column() { return (lane_index() & 2) * 2 + (lane_index() & 1) * 8; }

}  // namespace fovea::device

// Rows of sums from a warp's registers to global memory, 16 bytes at a time: those of dK and dV,
// and of o for write_rows.h.
#pragma once

#include "../tile.h"

namespace fovea::device {

// The four lanes of a row hold columns 2t, 2t + 1 of each 8, packed. After this, lane t holds four
// neighbours of two such groups, from exchanged_column() on, and all four lanes 32 bytes in a row.
FOVEA_DEVICE Words2 exchange_in_pair(unsigned first, unsigned second) {
  const bool odd = (lane_index() & 1) != 0;
  const unsigned other = shuffle_xor(odd ? first : second, 1);
  return {odd ? other : first, odd ? second : other};
}
FOVEA_DEVICE int exchanged_column() { return (lane_index() & 2) * 2 + (lane_index() & 1) * 8; }

template <class Output>
FOVEA_DEVICE unsigned pack_16_bit(float x, float y) {
  if constexpr (bytes_of<Output> == 2) return pack(Output{}, x, y);
  return 0;
}

// Says whether there is a NaN among them.
template <int n>
FOVEA_DEVICE bool scale_sums(float (&sums)[n][4], float factor) {
  bool nan = false;
  FOVEA_UNROLL for (int i = 0; i < 4 * n; ++i) {
    float& x = sums[i / 4][i % 4];
    x *= factor;
    nan |= x != x;
  }
  return nan;
}

// 16 rows of 8 n sums. Rows from `inside` on are written as zeros, those from `end` on not at all.
template <class Output, int n>
FOVEA_DEVICE void write_rows(const float (&sum)[n][4], const RowsOut& to, int inside, int end) {
  auto* const data = static_cast<typename Stored<Output>::Type*>(to.data);
  const int t = lane_index() % 4;
  FOVEA_UNROLL for (int r = 0; r < 2; ++r) {
    const int row = lane_index() / 4 + 8 * r;
    const bool exists = row < end, counts = row < inside;
    auto* const at = data + row * to.row_stride;
    if (bytes_of<Output> == 2 && to.wide) {
      FOVEA_UNROLL for (int j = 0; j < n; j += 2) {
        const Words2 words =
            exchange_in_pair(pack_16_bit<Output>(sum[j][2 * r], sum[j][2 * r + 1]),
                             pack_16_bit<Output>(sum[j + 1][2 * r], sum[j + 1][2 * r + 1]));
        const int column = 8 * j + exchanged_column();
        if (!exists || column >= to.columns) continue;
        *reinterpret_cast<Words2*>(at + column) = counts ? words : Words2{0, 0};
      }
      continue;
    }
    FOVEA_UNROLL for (int e = 0; e < 2 * n; ++e) {
      const int column = 8 * (e / 2) + 2 * t + e % 2;
      if (!exists || column >= to.columns) continue;
      const float x = counts ? sum[e / 2][2 * r + e % 2] : 0.0f;
      write_element<Output>(data, row * to.row_stride + column * to.column_stride, x);
    }
  }
}

// Zeros in as many of 16 rows as exist.
template <class Output>
FOVEA_DEVICE void clear_rows(const RowsOut& to, int end) {
  FOVEA_NO_UNROLL for (int i = lane_index(); i < min(end, 16) * to.columns; i += 32) {
    const int row = i / to.columns, column = i - row * to.columns;
    write_element<Output>(to.data, row * to.row_stride + column * to.column_stride, 0.0f);
  }
}

}  // namespace fovea::device

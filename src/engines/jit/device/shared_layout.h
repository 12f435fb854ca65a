// How kernels lay out a block's shared memory, as functions of plain numbers: the host needs the
// same sums to launch them. Every piece is a multiple of 16 bytes.
#pragma once

namespace fovea::device {

// Rows are 16 bytes longer than they need to be: eight rows that lie one below the other then begin
// on different banks, whatever their length.
constexpr int row_bytes(int columns, int element_bytes) { return columns * element_bytes + 16; }

constexpr int round_to_16(int bytes) { return (bytes + 15) / 16 * 16; }

// What a kernel's shared memory depends on.
struct TileSizes {
  int element_bytes;  // of q, k and v
  int d, dv;          // head dims, rounded up to their class
  int rows, columns;  // queries and keys of a tile
  int row_words, column_words;  // of Formula
};

struct ForwardShared {
  int q, k, v, p, row_words, column_words, bytes;
  constexpr explicit ForwardShared(const TileSizes& t)
      : q(0),
        k(q + t.rows * row_bytes(t.d, t.element_bytes)),
        v(k + t.columns * row_bytes(t.d, t.element_bytes)),
        p(v + t.columns * row_bytes(t.dv, t.element_bytes)),
        // The matrix units take probabilities from registers, f32 products from shared memory.
        row_words(p + (t.element_bytes == 4 ? t.rows * row_bytes(t.columns, 4) : 0)),
        column_words(row_words + round_to_16(4 * t.rows * t.row_words)),
        bytes(column_words + round_to_16(2 * 4 * t.columns * t.column_words)) {}  // two tiles'
};

}  // namespace fovea::device

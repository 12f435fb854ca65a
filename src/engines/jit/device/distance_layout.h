// Where values of a formula by k - q lie in global memory, as functions of plain numbers: the host
// needs the same sums. distances.h computes the values.
#pragma once

namespace fovea::device {

// Tiles of hopper/backward.h copy those of their diagonals, 64 + 128 of them, at once: the first of
// a tile lies at a multiple of 16 bytes, and there is room for what a tile has beyond the
// sequences.
constexpr int distance_lead(int sq) { return 64 + (4 - sq % 4) % 4; }
// Of k - q of a head: word w of it lies w * distance_stride behind word 0.
constexpr int distance_place(int sq, int difference) {
  return distance_lead(sq) + sq - 1 + difference;
}
constexpr int distance_stride(int sq, int skv) {
  return (distance_lead(sq) + sq + skv + 128 + 3) / 4 * 4;
}

}  // namespace fovea::device

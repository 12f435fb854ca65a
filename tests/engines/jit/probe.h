// What tests ask of a rendered formula at one point. Compiled on both sides, so it includes
// nothing.
#pragma once

namespace fovea::test {

struct Probe {
  const long long* words;
  int b, h, B, H, Hkv, Sq, Skv;
  int q, k;
  float s, grad;
  int box[6];  // h, q, k: first and last of each
};

// Answers: keep, score, gradient, the tile's class, then the extra roots; bits of each.
inline constexpr int most_extra = 12;
struct ProbeAnswer {
  unsigned keep, score, gradient, tile;
  unsigned extra[most_extra];
};

// A set of values of any type.
struct ValueSet {
  long long i_lo, i_hi;
  float f_lo, f_hi;
  bool nan, can_false, can_true;
};

}  // namespace fovea::test

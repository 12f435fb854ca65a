// What cuDNN gets wrong in graphs that it supports, by the versions and architectures where it was
// seen: lowering avoids it, or the problem is refused. Knows no Problem, since the tests that check
// these cases have only the C++ interface's.
#pragma once

#include <vector>

namespace fovea::cudnn {

// A feature whose results are wrong: attention as a whole, or packed sequences.
struct WrongFeature {
  const char* what;
  const char* advice;
  bool packed_only = false;
};
std::vector<WrongFeature> wrong_features(int version, int sm);

struct Workarounds {
  // Inputs of one element per sequence, and in a backward of one per key, are read from wrong
  // places: they are repeated along the rows, where they are read right.
  bool narrow_inputs = true;
  // Some comparisons of rows with columns (k + 2 < q) are taken for the diagonal: they are made of
  // the difference.
  bool row_comparisons = true;
  // The gradient of a bias is wrong beside a modifier: refused.
  bool bias_beside_modifier = true;
  // Graphs whose modifier, or its derivative, does not use its input crash: refused.
  bool unused_score = true;
  // Captured tensors whose elements do not lie row by row fault, or are read elsewhere: refused.
  bool scattered_rows = true;
};
Workarounds workarounds_for(int version, int sm);

// For `./dev gpu known-bad`, which tries one of them at a time: workarounds_for() returns this from
// now on; null: what is known again.
void replace_workarounds(const Workarounds* avoid);

}  // namespace fovea::cudnn

// Sets of values as intervals: only the types. The device's src/ir/interval.h.
#pragma once

#include "primitives.h"

namespace fovea::device {

// In 64 bits: operands are i32, so sums and products are exact.
struct IntInterval {
  long long lo = -2147483648LL;
  long long hi = 2147483647LL;

  static FOVEA_DEVICE IntInterval of(long long value) { return {value, value}; }
  FOVEA_DEVICE bool single() const { return lo == hi; }
  FOVEA_DEVICE bool contains(long long x) const { return lo <= x && x <= hi; }
  FOVEA_DEVICE bool fits_i32() const { return lo >= -2147483648LL && hi <= 2147483647LL; }
};

// [lo, hi], and NaN if `nan`. lo > hi: no number at all. Signed zeros are not told apart.
struct RealInterval {
  float lo = -infinity();
  float hi = infinity();
  bool nan = true;

  static FOVEA_DEVICE RealInterval none() { return {infinity(), -infinity(), true}; }
  static FOVEA_DEVICE RealInterval of(float value) {
    return value != value ? none() : RealInterval{value, value, false};
  }
  FOVEA_DEVICE bool empty() const { return lo > hi; }
  FOVEA_DEVICE bool single() const { return lo == hi && !nan; }
};

struct BoolSet {
  bool can_false = true;
  bool can_true = true;

  static FOVEA_DEVICE BoolSet of(bool value) { return {!value, value}; }
  FOVEA_DEVICE bool always() const { return can_true && !can_false; }
  FOVEA_DEVICE bool never() const { return can_false && !can_true; }
};

}  // namespace fovea::device

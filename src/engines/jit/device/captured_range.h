// What a load can read over a box: one element, or the minima and maxima of blocks of elements that
// summarize.h has found. The device's src/ir/load_range, which searches the elements instead.
#pragma once

#include "captured_arguments.h"
#include "captured_load.h"
#include "interval.h"

namespace fovea::device::captured {

inline constexpr int most_summary_blocks = 8;  // that a box is classified by

// A set of values of each type that loads give.
FOVEA_DEVICE RealInterval only(float x) { return RealInterval::of(x); }
FOVEA_DEVICE IntInterval only(int x) { return IntInterval::of(x); }
FOVEA_DEVICE BoolSet only(bool x) { return BoolSet::of(x); }
FOVEA_DEVICE RealInterval anything(float) { return {}; }
FOVEA_DEVICE IntInterval anything(int) { return {}; }
FOVEA_DEVICE BoolSet anything(bool) { return {}; }

// The empty set, and a set with one more block. A NaN in a block of f32 makes both its ends NaN:
// then anything is possible.
FOVEA_DEVICE RealInterval empty_set(float) { return {infinity(), -infinity(), false}; }
FOVEA_DEVICE IntInterval empty_set(int) { return {2147483647LL, -2147483648LL}; }
FOVEA_DEVICE BoolSet empty_set(bool) { return {false, false}; }
FOVEA_DEVICE RealInterval with_block(RealInterval a, unsigned lowest, unsigned highest) {
  const float lo = float_of_bits(lowest), hi = float_of_bits(highest);
  return lo != lo ? RealInterval{} : reals::hull(a, {lo, hi, false});
}
FOVEA_DEVICE IntInterval with_block(IntInterval a, unsigned lowest, unsigned highest) {
  return ints::hull(a, {static_cast<int>(lowest), static_cast<int>(highest)});
}
FOVEA_DEVICE BoolSet with_block(BoolSet a, unsigned lowest, unsigned highest) {
  return bools::hull(a, {lowest == 0, highest != 0});
}

// `words`: the tensor's; `along`: the index that its table is cut along, or -1; `table`: its
// address, or 0.
template <class Type, int rank>
FOVEA_DEVICE auto range(const long long* words, const IntInterval (&index)[rank > 0 ? rank : 1],
                        int along, long long table) {
  const auto zero = Type::value(0);
  long long at = 0, row = 0;  // the first element; the row of the table
  long long first = 0, last = 0, blocks = 0;
  for (int i = 0; i < rank; ++i) {
    const long long extent = words[1 + 2 * i];
    const long long lo = clamped(static_cast<int>(index[i].lo), extent);
    const long long hi = clamped(static_cast<int>(index[i].hi), extent);
    at += lo * words[2 + 2 * i];
    if (i == along) {
      first = lo, last = hi;
      blocks = (extent + summary_block - 1) / summary_block;
    } else {
      if (lo != hi) return anything(zero);
      row = row * extent + lo;
    }
  }
  if (first == last) return only(load<Type>(data_of<Type>(words[0]), at));
  first /= summary_block, last /= summary_block;
  if (table == 0 || last - first >= most_summary_blocks) return anything(zero);
  auto out = empty_set(zero);
  const unsigned* const found =
      reinterpret_cast<const unsigned*>(table) + 2 * (row * blocks + first);
  FOVEA_NO_UNROLL for (long long i = 0; i <= last - first; ++i) {
    out = with_block(out, load_global(found + 2 * i), load_global(found + 2 * i + 1));
  }
  return out;
}

}  // namespace fovea::device::captured

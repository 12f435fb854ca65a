// Minima and maxima of a captured tensor, by blocks of 64 elements along one index: the table that
// Formula::classify reads. One warp per block of elements.
#pragma once

#include "captured_arguments.h"
#include "captured_load.h"

namespace fovea::device {

namespace captured {

// The ends of what a warp has seen. A NaN makes both ends NaN.
struct RealEnds {
  float lo = infinity(), hi = -infinity();
  bool nan = false;

  FOVEA_DEVICE void add(float x) {
    lo = x < lo ? x : lo;  // false for NaN
    hi = hi < x ? x : hi;
    nan = nan || x != x;
  }
  FOVEA_DEVICE void join_warp() {
    for (int mask = 16; mask > 0; mask /= 2) {
      const float other_lo = shuffle_xor(lo, mask), other_hi = shuffle_xor(hi, mask);
      lo = other_lo < lo ? other_lo : lo;
      hi = hi < other_hi ? other_hi : hi;
    }
    nan = any_in_warp(nan);
  }
  FOVEA_DEVICE unsigned lowest() const { return nan ? 0x7fc00000u : bits_of(lo); }
  FOVEA_DEVICE unsigned highest() const { return nan ? 0x7fc00000u : bits_of(hi); }
};

struct IntEnds {
  int lo = 2147483647, hi = -2147483647 - 1;

  FOVEA_DEVICE void add(int x) {
    lo = x < lo ? x : lo;
    hi = hi < x ? x : hi;
  }
  FOVEA_DEVICE void join_warp() {
    for (int mask = 16; mask > 0; mask /= 2) {
      const int other_lo = shuffle_xor(lo, mask), other_hi = shuffle_xor(hi, mask);
      lo = other_lo < lo ? other_lo : lo;
      hi = hi < other_hi ? other_hi : hi;
    }
  }
  FOVEA_DEVICE unsigned lowest() const { return static_cast<unsigned>(lo); }
  FOVEA_DEVICE unsigned highest() const { return static_cast<unsigned>(hi); }
};

FOVEA_DEVICE RealEnds ends_of(float) { return {}; }
FOVEA_DEVICE IntEnds ends_of(int) { return {}; }
FOVEA_DEVICE IntEnds ends_of(bool) { return {}; }

}  // namespace captured

// Type: captured::StoredF32 ...
template <class Type>
FOVEA_DEVICE void summarize(const SummarizeArguments& call) {
  constexpr int block = summary_block;
  const long long number =
      static_cast<long long>(block_x()) * (block_threads() / 32) + thread_index() / 32;
  const long long threads = static_cast<long long>(grid_x()) * block_threads();
  for (long long i = static_cast<long long>(block_x()) * block_threads() + thread_index();
       i < call.cleared_words; i += threads) {
    call.cleared[i] = 0;
  }
  if (number >= call.blocks) return;  // the same for all lanes of a warp
  const long long length = call.extent[call.along];
  const long long in_row = (length + block - 1) / block;
  const long long first = number % in_row * block;
  long long row = number / in_row, at = 0;
  for (int i = call.rank - 1; i >= 0; --i) {
    if (i == call.along) continue;
    at += row % call.extent[i] * call.stride[i];
    row /= call.extent[i];
  }
  const auto* const data = static_cast<const typename Type::Stored*>(call.data);
  auto ends = captured::ends_of(Type::value(0));
  for (long long i = first + lane_index(); i < first + block && i < length; i += 32) {
    ends.add(captured::load<Type>(data, at + i * call.stride[call.along]));
  }
  ends.join_warp();
  if (lane_index() == 0) {
    call.table[2 * number] = ends.lowest();
    call.table[2 * number + 1] = ends.highest();
  }
}

}  // namespace fovea::device

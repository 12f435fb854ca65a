// Elements of captured tensors as formulas read them: converted to f32, i32 (i64 saturates) or
// bool, every index clamped, an empty tensor as 0. The device's ir/tensor_view.
#pragma once

#include "primitives.h"

namespace fovea::device::captured {

// The types that they are stored in.
struct StoredF32 {
  using Stored = float;
  static FOVEA_DEVICE float value(float x) { return x; }
  static FOVEA_DEVICE float of_bits(unsigned x) { return float_of_bits(x); }
};
struct StoredF16 {
  using Stored = unsigned short;
  static FOVEA_DEVICE float value(unsigned short x) { return to_float(F16{}, x); }
  static FOVEA_DEVICE float of_bits(unsigned x) { return value(static_cast<unsigned short>(x)); }
};
struct StoredBF16 {
  using Stored = unsigned short;
  static FOVEA_DEVICE float value(unsigned short x) { return to_float(BF16{}, x); }
  static FOVEA_DEVICE float of_bits(unsigned x) { return value(static_cast<unsigned short>(x)); }
};
struct StoredI32 {
  using Stored = int;
  static FOVEA_DEVICE int value(int x) { return x; }
  static FOVEA_DEVICE int of_bits(unsigned x) { return static_cast<int>(x); }
};
struct StoredI64 {
  using Stored = long long;
  static FOVEA_DEVICE int value(long long x) {
    return x > 2147483647          ? 2147483647
           : x < -2147483647LL - 1 ? -2147483647 - 1
                                   : static_cast<int>(x);
  }
};
struct StoredU8 {
  using Stored = unsigned char;
  static FOVEA_DEVICE int value(unsigned char x) { return x; }
};
struct StoredBool {
  using Stored = unsigned char;
  static FOVEA_DEVICE bool value(unsigned char x) { return x != 0; }
};

// Where a tensor begins. One without an address has strides of 0 and reads as one 0.
template <class Type>
FOVEA_DEVICE const typename Type::Stored* data_of(long long address) {
  static const typename Type::Stored nothing = 0;
  return address != 0 ? reinterpret_cast<const typename Type::Stored*>(address) : &nothing;
}

// Extents are at most 2^31 - 1: see WordLayout. The result is an offset's factor, thus 64 bits.
FOVEA_DEVICE long long clamped(int index, long long extent) {
  const int last = static_cast<int>(extent) - 1;
  const int below = index < last ? index : last;
  return below > 0 ? below : 0;
}

template <class Type>
FOVEA_DEVICE auto load(const typename Type::Stored* data, long long at) {
  return Type::value(load_global(data + at));
}

// A scalar's value: words are the address of it on the device, or 0, and its bits.
FOVEA_DEVICE unsigned scalar_bits(const long long* words) {
  if (words[0] != 0) return load_global(reinterpret_cast<const unsigned*>(words[0]));
  return static_cast<unsigned>(words[1]);
}

}  // namespace fovea::device::captured

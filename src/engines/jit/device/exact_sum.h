// Sums of f32 numbers whose bits do not depend on the order of adding: each number is an integer
// times 2^-149, and integers are added in nine digits of 32 bits, each in a word of 64 bits with
// room for 2^31 carries. A tenth word says whether there was a NaN or an infinity.
#pragma once

#include "captured_arguments.h"
#include "primitives.h"

namespace fovea::device {

FOVEA_DEVICE void add_exact(unsigned long long* sum, float x) {
  const unsigned bits = bits_of(x), exponent = bits >> 23 & 255u;
  if (exponent == 255) {
    or_global(reinterpret_cast<unsigned*>(sum + exact_digits), x != x ? 1u : x > 0 ? 2u : 4u);
    return;
  }
  const unsigned mantissa = (bits & 0x7fffffu) | (exponent != 0 ? 0x800000u : 0u);
  if (mantissa == 0) return;
  const unsigned place = exponent != 0 ? exponent - 1 : 0;  // of its lowest bit
  long long value = static_cast<long long>(mantissa) << place % 32;
  if ((bits >> 31) != 0) value = -value;
  const auto low = static_cast<unsigned>(value);
  const long long high = value >> 32;
  if (low != 0) add_global(sum + place / 32, static_cast<unsigned long long>(low));
  if (high != 0) add_global(sum + place / 32 + 1, static_cast<unsigned long long>(high));
}

FOVEA_DEVICE double exact_value(const unsigned long long* sum) {
  const auto flags = static_cast<unsigned>(sum[exact_digits]);
  if (flags != 0) {
    const bool nan = (flags & 1u) != 0 || (flags & 6u) == 6u;
    const float infinite = (flags & 2u) != 0 ? infinity() : -infinity();
    return static_cast<double>(nan ? infinite - infinite : infinite);
  }
  long long digit[exact_digits], top = 0;
  bool negative = false;
  FOVEA_NO_UNROLL for (int turn = 0; turn < 2; ++turn) {
    long long carry = 0;
    FOVEA_UNROLL for (int i = 0; i < exact_digits; ++i) {
      const auto own = static_cast<long long>(sum[i]);
      const long long all = (negative ? -own : own) + carry;
      digit[i] = all & 0xffffffffll;
      carry = all >> 32;
    }
    top = carry;
    if (top >= 0) break;
    negative = true;  // once more with the other sign
  }
  auto value = static_cast<double>(top);
  FOVEA_UNROLL for (int i = exact_digits - 1; i >= 0; --i) {
    value = value * 4294967296.0 + static_cast<double>(digit[i]);
  }
  value *= 0x1p-149;
  return negative ? -value : value;
}

}  // namespace fovea::device

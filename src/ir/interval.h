// Sets of values as intervals, and what each operation makes of them. Sound: the result contains
// every value that the operation can give in float on operands from the sets. ir/range walks
// formulas with these.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "ir/op.h"

namespace fovea::ir {

struct IntInterval {
  std::int64_t lo = std::numeric_limits<std::int32_t>::min();
  std::int64_t hi = std::numeric_limits<std::int32_t>::max();

  static constexpr IntInterval of(std::int64_t value) { return {value, value}; }
  constexpr bool single() const { return lo == hi; }
  constexpr bool contains(std::int64_t x) const { return lo <= x && x <= hi; }
  constexpr bool fits_i32() const {
    return lo >= std::numeric_limits<std::int32_t>::min() &&
           hi <= std::numeric_limits<std::int32_t>::max();
  }
  bool operator==(const IntInterval&) const = default;
};

// [lo, hi], and NaN if `nan`. lo > hi: no number at all. Signed zeros are not told apart.
struct RealInterval {
  float lo = -std::numeric_limits<float>::infinity();
  float hi = std::numeric_limits<float>::infinity();
  bool nan = true;

  static constexpr RealInterval of(float value) {
    if (value != value) return none();
    return {value, value, false};
  }
  static constexpr RealInterval none() {  // only NaN
    return {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), true};
  }
  constexpr bool empty() const { return lo > hi; }
  constexpr bool single() const { return lo == hi && !nan; }
};

struct BoolSet {
  bool can_false = true;
  bool can_true = true;

  static constexpr BoolSet of(bool value) { return {!value, value}; }
  constexpr bool always() const { return can_true && !can_false; }
  constexpr bool never() const { return can_false && !can_true; }
  constexpr BoolSet negated() const { return {can_true, can_false}; }
};

// The value set of one expression; the member of its type counts.
struct Range {
  IntInterval i;
  RealInterval f;
  BoolSet b;
};

// The smallest range that holds both.
Range hull(const Range& a, const Range& b);

// Operations on sets. Leaves, loads and constants have none: ir/range reads them from its box.
// For +, -, * and unary - on i32 a result outside i32 means that it may have wrapped: everything.
Range apply_range(Op op, std::span<const Range> args);

// The same rules for ir/range, which knows more about linear operands.
IntInterval wrapped(IntInterval exact);      // all of i32 unless it fits
BoolSet less(IntInterval difference);        // is a - b < 0
BoolSet less_equal(IntInterval difference);  // is a - b <= 0
BoolSet equal_zero(IntInterval difference);  // is a - b == 0
BoolSet equals_modulo(IntInterval x, std::int64_t modulus, std::int64_t rest);  // x % m == r, m > 0

}  // namespace fovea::ir

// Sets as device/interval.h has them, from and to what interval_test hands over. Included by the
// code that it compiles.
#pragma once

#include "engines/jit/device/interval.h"
#include "engines/jit/device/math.h"
#include "tests/engines/jit/interval_set.h"

namespace fovea::device {

using test::Set;

inline IntInterval ints_of(const Set& s) { return {s.i_lo, s.i_hi}; }
inline RealInterval reals_of(const Set& s) { return {s.f_lo, s.f_hi, s.nan}; }
inline BoolSet bools_of(const Set& s) { return {s.can_false, s.can_true}; }
inline void put(Set& s, IntInterval x) { s.i_lo = x.lo, s.i_hi = x.hi; }
inline void put(Set& s, RealInterval x) { s.f_lo = x.lo, s.f_hi = x.hi, s.nan = x.nan; }
inline void put(Set& s, BoolSet x) { s.can_false = x.can_false, s.can_true = x.can_true; }

}  // namespace fovea::device

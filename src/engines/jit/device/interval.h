// What Formula::classify computes with: the rules of src/ir/interval, one by one, so that a tile
// has the same class on the device as on the host. Here: sets of bools, and choices by them.
#pragma once

#include "interval_int.h"
#include "interval_real.h"

namespace fovea::device::bools {

FOVEA_DEVICE BoolSet negated(BoolSet a) { return {a.can_true, a.can_false}; }
FOVEA_DEVICE BoolSet hull(BoolSet a, BoolSet b) {
  return {a.can_false || b.can_false, a.can_true || b.can_true};
}
FOVEA_DEVICE BoolSet both(BoolSet a, BoolSet b) {
  return {a.can_false || b.can_false, a.can_true && b.can_true};
}
FOVEA_DEVICE BoolSet either(BoolSet a, BoolSet b) {
  return {a.can_false && b.can_false, a.can_true || b.can_true};
}
FOVEA_DEVICE BoolSet equal(BoolSet a, BoolSet b) {
  const bool same = (a.can_true && b.can_true) || (a.can_false && b.can_false);
  const bool differ = (a.can_true && b.can_false) || (a.can_false && b.can_true);
  return {differ, same};
}
FOVEA_DEVICE RealInterval to_real(BoolSet a) {
  return {a.can_false ? 0.0f : 1.0f, a.can_true ? 1.0f : 0.0f, false};
}
FOVEA_DEVICE IntInterval to_int(BoolSet a) { return {a.can_false ? 0 : 1, a.can_true ? 1 : 0}; }

// Union over the branches that can be taken.
FOVEA_DEVICE IntInterval choose(BoolSet condition, IntInterval x, IntInterval y) {
  return condition.always() ? x : condition.never() ? y : ints::hull(x, y);
}
FOVEA_DEVICE RealInterval choose(BoolSet condition, RealInterval x, RealInterval y) {
  return condition.always() ? x : condition.never() ? y : reals::hull(x, y);
}
FOVEA_DEVICE BoolSet choose(BoolSet condition, BoolSet x, BoolSet y) {
  return condition.always() ? x : condition.never() ? y : hull(x, y);
}

}  // namespace fovea::device::bools

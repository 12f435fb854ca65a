// What the fuzzer of stored files and the test that stands in for it in CI both do with an input:
// read it as a bundle and as a file of the cache, with and without sums that are made to fit, so
// that what lies behind the sums is reached too. Whatever is accepted must be consistent and read
// back the same.
#pragma once

#include <string>

#include "store/entry.h"

namespace fovea::store::testing {

struct DamageOutcome {
  bool accepted = false;  // as either
  std::string failure;    // what went wrong; empty if nothing did
};

// Lets everything but Damaged escape: that is a finding too.
DamageOutcome damage_target(Bytes input, bool fit_sums);

}  // namespace fovea::store::testing

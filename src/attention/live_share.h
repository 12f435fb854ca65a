// How much of the scores a mask keeps, as a share: for estimates of what a call will take. Tiles by
// ir/range, halved if they are mixed; what decides over values that are not known here is a
// guess. Microseconds.
#pragma once

#include "attention/problem.h"

namespace fovea {

// From 0 to 1. Where a captured tensor or a scalar without a value decides: half, what documents
// and block masks leave at least.
double live_share(const Problem& problem);

}  // namespace fovea

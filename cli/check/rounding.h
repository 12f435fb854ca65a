// How far the outputs of an attention move when its intermediate numbers are rounded as every
// engine rounds them: scores to f32, o and lse to their types before a backward reads them. Where
// terms cancel (a gradient that is zero by symmetry, a sum over a million scores), this is more
// than any limit relative to the result, and no engine can do better.
#pragma once

#include <map>
#include <string>

#include "cli/check/workload.h"

namespace fovea::cli {

struct Rounding {
  double norm = 0;  // of the difference
  double most = 0;  // of one element
};

// By output, the largest of a few draws of the reference engine in double. Empty where that cannot
// run the workload.
std::map<std::string, Rounding> rounding_of(const Workload& workload);

}  // namespace fovea::cli

// Are the outputs of a benchmark right? A few rows of o are computed once more on the host, in
// double, from the very tensors that the GPU has.
#pragma once

#include "bench/gpu/device_line.h"

namespace fovea::bench {

// ||o - right|| / ||right|| over sampled rows of the first set; NaN if something is not a
// number; negative if it cannot tell: packed tensors, dropout, sinks, captured tensors that are
// too large.
double error_of_sampled_rows(const DeviceLine& line);

// The share of scores that the mask keeps, by tiles of 64 x 64 of head 0: a mixed one counts as
// half.
double kept_share(const DeviceLine& line);

}  // namespace fovea::bench

// A workload again in double precision, for finite differences.
#pragma once

#include "cli/check/workload.h"

namespace fovea::cli {

// The same attention at the same point in double precision, dense, with captured floats in f32: for
// finite differences.
Workload in_double(const Workload& workload);

// The same formulas over captured floats in f32, the widest that there is; with another mod, if
// given.
Program widened_program(fovea_program program, const std::string& mod = "");

}  // namespace fovea::cli

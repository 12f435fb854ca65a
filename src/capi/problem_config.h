// The struct that describes a problem, both ways. Rules between its fields are
// attention/validate's.
#pragma once

#include "attention/problem.h"
#include "fovea/fovea.h"

namespace fovea::capi {

// Throws InvalidArgument; what it returns is valid.
Problem to_problem(const fovea_problem_config& config);

// Everything but the pointers, which live with a handle.
void describe(const Problem& problem, fovea_problem_config& config);

}  // namespace fovea::capi

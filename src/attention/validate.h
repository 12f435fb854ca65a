// Every rule about arguments, once. Errors name the argument, its value and the rule. Problems are
// checked when they are made, Bindings before a plan runs them; engines check nothing of this
// again.
#pragma once

#include "attention/bindings.h"
#include "attention/problem.h"

namespace fovea {

class Plan;

// Throws InvalidArgument.
void validate(const Problem& problem);

// Pointers, sizes, strides, lengths and starts (host values only), overlap of outputs, workspace.
// `problem` is the caller's; `device_memory`: pointers are the device's and not looked behind.
void validate(const Problem& problem, const Bindings& bindings, const Plan& plan,
              bool device_memory);

}  // namespace fovea

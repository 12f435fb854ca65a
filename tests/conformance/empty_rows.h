// What the definition says about a forward's outputs without computing them: rows with nothing kept
// are zero with an lse of -inf (or the sink), all other numbers are finite.
#pragma once

#include <string>

#include "cli/check/call.h"

namespace fovea::conformance {

// The first number that breaks it, in words; "" if none does.
std::string check_rows(const cli::Workload& workload, const cli::Results& results);

// The first element that is not finite, in words; "" if all are. For gradients.
std::string check_finite(const cli::NamedArray& named);

}  // namespace fovea::conformance

// The gradients that a backward is asked for, by name: `q,k,v,slopes,softcap,sink`. The one reader
// and printer of that list, for problem lines and for the C interface.
#pragma once

#include <string>
#include <string_view>

#include "attention/problem.h"

namespace fovea {

// Sets every want_ field of a Backward whose program is already there. Throws InvalidArgument for a
// name that is not known, is given twice, or has no gradient (i32, bool).
void want_gradients(Problem& problem, std::string_view names);

// The list that want_gradients reads back; "q,k,v" by default.
std::string wanted_gradients(const Problem& problem);

}  // namespace fovea

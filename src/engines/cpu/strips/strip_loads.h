// Reads captured tensors. An index is clamped to the tensor unless it is known to lie inside, so
// that no formula can read elsewhere. A row or strip that is contiguous in memory is read as
// vectors, or not copied at all.
#pragma once

#include "engines/cpu/strips/strip_state.h"

namespace fovea::cpu {

void prepare_load(StripState& state, const StripLoad& load, int rows);  // after the values of rows
void load_line(StripState& state, const StripLoad& load, int count);    // of a Row or Column load
void load_strip(StripState& state, const StripLoad& load,
                const StripRun::Strip& strip);  // of an Element load

}  // namespace fovea::cpu

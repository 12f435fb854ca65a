// From formulas to steps: lower, fuse, put in order by stage and phase, give out registers, look up
// kernels.
#pragma once

#include "engines/cpu/strips/strip.h"
#include "engines/cpu/strips/strip_code.h"

namespace fovea::cpu {

StripCode compile_strips(const StripProgram::Roots& roots, const KernelTable& kernels);

}  // namespace fovea::cpu

// Problem lines drawn from what engine cudnn can run, and from just beyond: sizes, layouts,
// lengths, offsets and strides of its kind, with formulas that it has options for.
#pragma once

#include <string>

#include "tests/ir/random.h"

namespace fovea::conformance {

std::string random_gpu_line(test::Random& random);

}  // namespace fovea::conformance

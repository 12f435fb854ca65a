// What the OpenMP runtimes in this process bind threads to.
#pragma once

#include <vector>

#include "attention/affinity.h"

namespace fovea {

// The places of each runtime that is loaded and binds threads: usually there is none, or one.
std::vector<std::vector<Cpus>> openmp_places();

}  // namespace fovea

// Runs kernels on the host: all blocks of a grid, one after the other in an order drawn from
// FOVEA_TEST_SEED.
#pragma once

#include <string>

#include "tests/jit_host/block.h"

namespace fovea::on_host {

struct Launch {
  unsigned x = 1, y = 1, z = 1;  // blocks
  unsigned threads = 32;
  unsigned shared_bytes = 0;
};

// Returns what the kernel did wrong, "" if nothing. Launches of several threads wait for each
// other.
std::string launch(Kernel kernel, void** parameters, const Launch& grid);

}  // namespace fovea::on_host

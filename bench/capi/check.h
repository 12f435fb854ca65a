// Calls of the C interface that must work.
#pragma once

#include <stdexcept>

#include "fovea/fovea.h"

namespace fovea::bench {

inline void check(fovea_status status) {
  if (status != FOVEA_OK) throw std::runtime_error(fovea_last_error());
}

}  // namespace fovea::bench

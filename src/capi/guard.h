// The one place where exceptions become statuses. Every function of the C interface that can fail
// runs inside guarded().
#pragma once

#include <utility>

#include "fovea/fovea.h"

namespace fovea::capi {

// The status of the exception that is being handled; its text becomes fovea_last_error().
fovea_status status_of_current_exception() noexcept;

template <class Body>
fovea_status guarded(Body&& body) noexcept {
  try {
    std::forward<Body>(body)();
    return FOVEA_OK;
  } catch (...) {
    return status_of_current_exception();
  }
}

}  // namespace fovea::capi

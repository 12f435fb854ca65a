// A plan for a GPU that is described and not here: it was compiled and stored, and cannot run.
#pragma once

#include <memory>

#include "attention/engine.h"

namespace fovea {

std::unique_ptr<Plan> make_described_plan(const Device& device);

}  // namespace fovea

// The text of struct CapturedTerms, which tells a kernel of the backward the terms of its plan.
#pragma once

#include <string>

#include "engines/jit/captured.h"

namespace fovea::jit {

// To stand behind device/captured.h, and behind device/hopper/captured.h.
std::string captured_text(const CapturedSums& captured, const WordLayout& layout);
std::string hopper_captured_text(const CapturedSums& captured, const WordLayout& layout);

}  // namespace fovea::jit

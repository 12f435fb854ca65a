// Where everything of a call's sums lies. Private to the files of captured.h.
#pragma once

#include "engines/cpu/captured/captured.h"
#include "engines/cpu/captured/captured_target.h"

namespace fovea::cpu {

struct Captured::Layout {
  LanePlan plan;
  std::span<CapturedTarget> targets;  // of each wanted tensor
  double* sums = nullptr;             // [lanes][lane_step]: private copies, then scalars
  std::int64_t lane_step = 0;
  std::int64_t scalar_sums = 0;  // where the scalars of a lane begin
  std::size_t bytes = 0;
};

}  // namespace fovea::cpu

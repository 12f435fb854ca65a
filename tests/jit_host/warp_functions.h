// Operations of a warp, computed from the operands of its 32 lanes.
#pragma once

#include "tests/jit_host/machine.h"
#include "tests/jit_host/shared_memory.h"

namespace fovea::on_host {

inline constexpr int lanes = 32;

void vote(Meeting kind, void* const (&operands)[lanes]);
void shuffle(Meeting kind, void* const (&operands)[lanes]);
void load_matrices(Meeting kind, void* const (&operands)[lanes], SharedMemory& memory,
                   const User& first_lane, Where where);
void multiply_add(Meeting kind, void* const (&operands)[lanes]);

const char* name_of(Meeting kind);

}  // namespace fovea::on_host

// An engine whose plans do nothing: what is left of a call is Fovea's own work around it.
#pragma once

namespace fovea::bench {

inline constexpr const char* idle_engine = "idle";

// Adds it to the process's planner, once.
void add_idle_engine();

}  // namespace fovea::bench

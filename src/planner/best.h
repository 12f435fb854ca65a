// From everyone's verdict to a choice and the sentence that explains it. Of a training pair each
// direction has the engine that is fastest at it, if times are known and the pair may be shared;
// else one engine that runs both.
#pragma once

#include "planner/explanation.h"

namespace fovea {

bool can(const Verdict& verdict);

// The verdict on an engine whose compile() refused, with what it said.
Verdict refused_to_compile(const std::string& text);

// Both directions must run on one engine: its own random numbers cannot be drawn again by another.
bool is_pinned(const Problem& problem);

void choose_best(Explanation& explanation, const Problem& problem);
void choose_named(Explanation& explanation, const Problem& problem, const std::string& engine,
                  bool from_environment);

}  // namespace fovea

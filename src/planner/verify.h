// Check on first use: compares what an engine has just computed with the reference engine, on a
// sample: one sequence, the query heads of one key/value head, and as many rows as take about a
// second. Gradients of captured things and of sinks, which are sums over everything, are not
// compared; gradients of keys only if the sample has all rows.
#pragma once

#include <string>

#include "attention/bindings.h"
#include "attention/device.h"
#include "attention/problem.h"
#include "planner/planner.h"

namespace fovea {

struct FinishedCall {
  const Problem& problem;
  const Bindings& bindings;
  DeviceKind device = DeviceKind::Cpu;
};

// What differs, in words: "o has NaN ...", "dq differs by 0.3 ...". Empty: nothing does, or nothing
// could be compared (dropout by an engine's own generator, formulas of the leaf B). Waits for the
// call's stream, which must not be captured.
std::string differences(Planner& planner, const FinishedCall& call);

}  // namespace fovea

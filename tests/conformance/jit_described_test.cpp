// Engine jit on the list without a GPU: it claims for described GPUs what engine cpu runs on a
// host, and has a text for every kernel of it.
#include <gtest/gtest.h>

#include "attention/device.h"
#include "attention/problem_text.h"
#include "engines/jit/bake.h"
#include "engines/jit/prepare.h"
#include "problems.h"

namespace fovea::conformance {
namespace {

// Its backward takes narrower heads than its forward.
bool has_wide_backward(const Case& problem) {
  const ProblemLine parsed = parse_problem_line(problem.line);
  if (!parsed.backward) return false;
  const Sizes& sizes = parsed.backward->sizes;
  return sizes.d > jit::widest_backward || sizes.dv > jit::widest_backward;
}

TEST(DescribedJit, RefusesWhatEngineCpuRefusesAndNothingElse) {
  for (const Case& problem : read_problems()) {
    const std::string on_host =
        has_wide_backward(problem) ? "head_dim" : verdict("cpu", problem, "cpu");
    for (const std::string& device : built_in_devices()) {
      EXPECT_EQ(verdict("jit", problem, device), on_host) << device << ": " << problem.line;
    }
  }
}

TEST(DescribedJit, HasATextForEveryKernel) {
  const Device h200 = find_device("h200");
  for (const Case& problem : read_problems()) {
    if (verdict("jit", problem, "h200") != "pass") continue;
    const ProblemLine parsed = parse_problem_line(problem.line);
    for (const auto* direction : {&parsed.forward, &parsed.backward}) {
      if (!*direction) continue;
      const jit::Prepared prepared = jit::prepare(jit::bake(**direction).baked.problem, h200);
      EXPECT_FALSE(prepared.units.empty()) << problem.line;
    }
  }
}

}  // namespace
}  // namespace fovea::conformance

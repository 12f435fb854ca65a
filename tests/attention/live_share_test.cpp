#include "attention/live_share.h"

#include <gtest/gtest.h>

#include "attention/problem_text.h"

namespace fovea {
namespace {

double share(const std::string& words) {
  return live_share(*parse_problem_line("b=2 h=4 sq=4096 skv=4096 " + words).forward);
}

TEST(LiveShare, IsWhatAMaskKeepsToAFewTiles) {
  EXPECT_EQ(share(""), 1);
  EXPECT_NEAR(share("mask=causal"), 0.5, 0.02);
  EXPECT_NEAR(share("mask=\"q >= k && h < 4\""), 0.5, 0.02);
  EXPECT_NEAR(share("mask=\"k < 1024\""), 0.25, 0.02);
  EXPECT_NEAR(share("mask=sliding(64)"), 0.03, 0.02);
  EXPECT_NEAR(share("mask=\"q >= k\" q_offset=4096"), 1, 0.02);
  EXPECT_EQ(share("mask=\"k < 0\""), 0);
}

TEST(LiveShare, KnowsTheValuesThatScalarsHave) {
  EXPECT_NEAR(share("mask=\"k < n\" scalar=\"n:i32=1024\""), 0.25, 0.02);
  EXPECT_EQ(share("mask=\"k < n\" scalar=\"n:i32\""), 0.5);
}

TEST(LiveShare, GuessesWhereCapturedTensorsDecide) {
  EXPECT_EQ(share("mask=\"d[b,q] == d[b,k]\" tensor=\"d:i32[B,Sq]\""), 0.5);
}

TEST(LiveShare, SizesOfZero) {
  EXPECT_EQ(live_share(*parse_problem_line("sq=0 skv=8 mask=causal").forward), 1);
  EXPECT_EQ(live_share(*parse_problem_line("sq=8 skv=0 mask=causal").forward), 1);
}

}  // namespace
}  // namespace fovea

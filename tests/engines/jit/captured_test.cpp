// Which sums a backward adds up for captured tensors and scalars, and how.
#include "engines/jit/captured_text.h"

#include <gtest/gtest.h>

#include "tests/engines/jit/jit_case.h"

namespace fovea::jit {
namespace {

using device::SumsKept;

CapturedSums captured_of(const std::string& line) {
  return CapturedSums(testing::baked_backward("b=2 h=4 sq=64 d=32 " + line).problem);
}

TEST(Captured, WhatTermsChangeWithDecidesHowTheyAreAddedUp) {
  const auto kind = [](const std::string& index, const std::string& extents) {
    const CapturedSums captured =
        captured_of("mod=\"score + t[" + index + "]\" tensor=\"t:f32[" + extents + "]\" grads=q,t");
    EXPECT_EQ(captured.terms().size(), 1u);
    return captured.terms().at(0).kind;
  };
  EXPECT_EQ(kind("h", "H"), TermKind::Uniform);
  EXPECT_EQ(kind("", ""), TermKind::Uniform);
  EXPECT_EQ(kind("b, q // 4", "B,Sq"), TermKind::Row);
  EXPECT_EQ(kind("k, h", "Skv,H"), TermKind::Column);
  EXPECT_EQ(kind("h, q, k", "H,Sq,Skv"), TermKind::Cells);
  EXPECT_EQ(kind("k, 1, q", "Skv,2,Sq"), TermKind::Cells);
  EXPECT_EQ(kind("h, min(abs(q - k), 31)", "H,32"), TermKind::Diagonal);
  EXPECT_EQ(kind("q, k // 2", "Sq,Skv"), TermKind::Gather);
  EXPECT_EQ(kind("q, q", "Sq,Sq"), TermKind::Row);
}

TEST(Captured, SumsHaveUniformIndicesFirstAndKeysLast) {
  const CapturedSums captured =
      captured_of("mod=\"score + t[k, b, q, h]\" tensor=\"t:f32[Skv,B,Sq,H]\" grads=q,t");
  const WantedGradient& target = captured.targets().at(0);
  EXPECT_EQ(target.order, (std::vector<int>{1, 3, 2, 0}));
  EXPECT_EQ(target.outer, 2);
}

TEST(Captured, ATensorOfSeveralTermsHasOneOrder) {
  const CapturedSums captured = captured_of(
      "mod=\"score + t[h, q, k] + t[h, k, q] + t[q % 4, 0, 0]\" tensor=\"t:f32[H,Sq,Skv]\" "
      "grads=q,t");
  ASSERT_EQ(captured.terms().size(), 3u);
  EXPECT_EQ(captured.targets().at(0).outer, 0);  // the first index changes with q in one of them
  int elements = 0;
  for (const CapturedTerm& term : captured.terms()) elements += term.kind == TermKind::Cells;
  EXPECT_EQ(elements, 1);
}

TEST(Captured, ScalarsAndHeadsAreAddedUpInDouble) {
  const CapturedSums captured =
      captured_of("mod=\"c * score + t[h]\" scalar=\"c=2\" tensor=\"t:bf16[H]\" grads=q,t,c");
  for (const WantedGradient& target : captured.targets()) EXPECT_EQ(target.kept, SumsKept::F64);
  EXPECT_EQ(captured.shared_bytes(), 0);
}

TEST(Captured, DeterministicSumsAreExact) {
  const CapturedSums captured = captured_of(
      "mod=\"score + t[h, q - k + 63]\" tensor=\"t:f32[H,127]\" grads=q,t deterministic=1");
  EXPECT_EQ(captured.targets().at(0).kept, SumsKept::Exact);
  EXPECT_EQ(captured.shared_bytes(), 0);
}

TEST(Captured, WhatNothingAddsToIsKeptNowhere) {
  const CapturedSums captured = captured_of("mask=\"t[h] < f32(q)\" tensor=\"t:f32[H]\" grads=q,t");
  ASSERT_EQ(captured.targets().size(), 1u);
  EXPECT_EQ(captured.targets().at(0).kept, SumsKept::Nowhere);
  EXPECT_FALSE(captured.any_terms());
  EXPECT_EQ(captured_text(captured, {}), "struct CapturedTerms : NoCaptured {};\n");
}

}  // namespace
}  // namespace fovea::jit

// How ranks of context parallelism share an attention: every kept score once, little to send. And
// what share of the scores a mask keeps.
#include "attention/parallel.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "attention/live_share.h"
#include "attention/problem_text.h"
#include "base/error.h"
#include "ir/eval.h"
#include "tests/error_of.h"

namespace fovea {
namespace {

struct Case {
  std::string line;
  ParallelSpec spec;
  std::vector<std::int32_t> starts, lengths, documents;
  ir::TensorView view{};

  Problem problem() const { return *parse_problem_line(line).forward; }
  ParallelValues values(const Problem& whole) {
    ParallelValues out;
    out.q = {starts, lengths};
    out.k = {starts, lengths};
    if (!documents.empty()) {
      const std::int64_t extents[] = {whole.sizes.b, whole.sizes.sq};
      view = ir::TensorView::dense(documents.data(), DType::I32, extents);
      out.tensors = {&view, 1};
    }
    return out;
  }
};

// Every kept score must be in exactly one tile of one rank of each group.
void expect_complete(Case given) {
  const Problem whole = given.problem();
  const ParallelValues values = given.values(whole);
  ParallelPlan plan(whole, values, given.spec);
  std::map<std::pair<int, int>, int> computed;  // tile -> how often
  for (int rank = 0; rank < given.spec.ranks; rank += plan.head_ranks()) {
    for (const ParallelStep& step : plan.steps(rank)) {
      for (const ParallelTile& tile : step.tiles) ++computed[{tile.q, tile.k}];
    }
  }
  const auto at = [&](const Dealt& side, std::int64_t s, std::int64_t position) {
    for (std::size_t i = 0; i < side.pieces.size(); ++i) {
      const Piece& piece = side.pieces[i];
      const Run run = piece[piece.size() == 1 ? 0 : static_cast<std::size_t>(s)];
      if (given.spec.order == TokenOrder::Striped
              ? position % given.spec.ranks == static_cast<std::int64_t>(i)
              : run.first <= position && position < run.first + run.length) {
        return static_cast<int>(i);
      }
    }
    return -1;
  };
  for (std::int64_t s = 0; s < whole.sizes.b; ++s) {
    const auto i = static_cast<std::size_t>(s);
    std::int64_t length = whole.sizes.sq;
    if (!given.starts.empty()) length = given.starts[i + 1] - given.starts[i];
    if (!given.lengths.empty()) length = given.lengths[i];
    for (std::int32_t q = 0; q < length; ++q) {
      for (std::int32_t k = 0; k < length; ++k) {
        ir::Point<float> point{};
        point.b = static_cast<std::int32_t>(s);
        point.q = q;
        point.k = k;
        point.B = static_cast<std::int32_t>(whole.sizes.b);
        point.H = static_cast<std::int32_t>(whole.sizes.h);
        point.Sq = point.Skv = static_cast<std::int32_t>(length);
        point.tensors = values.tensors;
        if (whole.program.mask() && !ir::evaluate(whole.program.mask(), point).b) continue;
        const std::pair tile{at(plan.q(), s, q), at(plan.k(), s, k)};
        ASSERT_EQ(computed[tile], 1) << given.line << " b=" << s << " q=" << q << " k=" << k;
      }
    }
  }
}

TEST(Parallel, EveryKeptScoreIsComputedOnce) {
  const std::string sizes = "b=2 h=4 sq=37 d=8 ";
  const std::vector<std::int32_t> documents = [] {
    std::vector<std::int32_t> ids;
    for (int i = 0; i < 74; ++i) ids.push_back(i % 37 / (i < 37 ? 7 : 11));
    return ids;
  }();
  const std::string document = " mask=\"doc[b,q] == doc[b,k]\" tensor=\"doc:i32[B,Sq]\"";
  for (const TokenOrder order : {TokenOrder::Contiguous, TokenOrder::Zigzag, TokenOrder::Striped}) {
    for (const int ranks : {1, 2, 4, 5}) {
      for (const char* const mask : {"", "mask=causal", "mask=sliding(5)", "mask=\"q + k < 9\"",
                                     "mask=\"q + (Skv - Sq) >= k && b < 1\""}) {
        expect_complete({sizes + mask, {ranks, Strategy::Ring, order}, {}, {}, {}});
        if (order == TokenOrder::Striped) continue;
        expect_complete({sizes + mask, {ranks, Strategy::Ring, order}, {}, {30, 11}, {}});
      }
      expect_complete({sizes + document, {ranks, Strategy::AllGather, order}, {}, {}, documents});
    }
  }
  expect_complete({sizes + "mask=causal", {4, Strategy::AllToAll, TokenOrder::Zigzag}, {}, {}, {}});
  expect_complete(
      {sizes + "mask=causal", {4, Strategy::TwoLevel, TokenOrder::Zigzag, 2}, {}, {}, {}});
}

TEST(Parallel, PackedSequencesAreCutInALineOrEachForItself) {
  const std::string line =
      "b=4 h=4 sq=40 d=8 layout=thd tq=72 tk=72 cu_q=bound cu_k=bound mask=causal";
  const std::vector<std::int32_t> starts{0, 7, 7, 47, 72};
  for (const TokenOrder order : {TokenOrder::Contiguous, TokenOrder::Zigzag}) {
    for (const int ranks : {2, 4, 8}) {
      expect_complete({line, {ranks, Strategy::Ring, order}, starts, {}, {}});
      expect_complete({line, {ranks, Strategy::TwoLevel, order, 2}, starts, {5, 0, 38, 25}, {}});
    }
  }
}

double busiest(const std::string& line, TokenOrder order) {
  const Problem whole = *parse_problem_line(line).forward;
  ParallelPlan plan(whole, {}, {8, Strategy::Ring, order});
  double sum = 0, most = 0;
  for (int rank = 0; rank < 8; ++rank) {
    double own = 0;
    for (const ParallelStep& step : plan.steps(rank)) {
      for (const ParallelTile& tile : step.tiles) own += tile.scores;
    }
    sum += own;
    most = std::max(most, own);
  }
  return most / (sum / 8);
}

TEST(Parallel, ZigzagSharesTheWorkOfACausalMask) {
  EXPECT_GT(busiest("sq=4096 mask=causal", TokenOrder::Contiguous), 1.8);
  EXPECT_NEAR(busiest("sq=4096 mask=causal", TokenOrder::Zigzag), 1, 0.01);
}

TEST(Parallel, WhatIsMaskedIsNotSent) {
  const Problem whole = *parse_problem_line("h=2 sq=64 d=8 dv=4 mask=sliding(5)").forward;
  ParallelPlan plan(whole, {}, {4, Strategy::Ring, TokenOrder::Contiguous});
  const std::vector<ParallelStep> steps = plan.steps(1);
  ASSERT_EQ(steps.size(), 4U);
  EXPECT_EQ(steps[1].from, 0);
  EXPECT_EQ(steps[1].received, std::vector{0});
  EXPECT_EQ(steps[1].sent, std::vector{1});
  EXPECT_TRUE(steps[2].received.empty() && steps[2].sent.empty() && steps[2].tiles.empty());
  EXPECT_TRUE(steps[3].received.empty() && steps[3].sent.empty() && steps[3].tiles.empty());
  // 16 rows of two heads; in the backward the same again, and gradients of rank 0's keys.
  EXPECT_EQ(plan.sent(1, steps).forward, 16 * 2 * 12 * 4);
  EXPECT_EQ(plan.sent(1, steps).backward, 2 * 16 * 2 * 12 * 4);
}

TEST(Parallel, AModifierThatMasksCounts) {
  const Problem whole = *parse_problem_line("sq=64 mod=\"q >= k ? score : -inf\"").forward;
  ParallelPlan plan(whole, {}, {4, Strategy::Ring, TokenOrder::Contiguous});
  EXPECT_TRUE(plan.steps(0)[1].tiles.empty());
  EXPECT_FALSE(plan.steps(1)[1].tiles.empty());
}

std::string refusal(const std::string& line, const ParallelSpec& spec) {
  const Problem whole = *parse_problem_line(line).forward;
  return test::error_of<InvalidArgument>([&] { ParallelPlan(whole, {}, spec); });
}

TEST(Parallel, Refusals) {
  EXPECT_NE(refusal("h=6 sq=8", {4, Strategy::AllToAll}).find("6 heads of keys"),
            std::string::npos);
  EXPECT_NE(refusal("sq=8", {0, Strategy::Ring}).find("ranks=0"), std::string::npos);
  EXPECT_NE(refusal("sq=8", {4, Strategy::TwoLevel, TokenOrder::Zigzag, 3}).find("head_ranks=3"),
            std::string::npos);
  EXPECT_NE(refusal("sq=8 layout=thd tq=8 tk=8 cu_q=bound cu_k=bound", {2}).find("cu_q"),
            std::string::npos);
  EXPECT_THROW(strategy_of("rings"), InvalidArgument);
  EXPECT_THROW(order_of("zig"), InvalidArgument);
}

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

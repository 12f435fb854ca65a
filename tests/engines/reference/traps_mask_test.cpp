// What went wrong in other systems with masks, one test per trap, named by its number in the list
// of traps. traps_test has the others.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/engines/reference/example.h"

namespace fovea::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// Fully masked rows, with every output and gradient in place.
TEST(Trap26, FullyMaskedRows) {
  Problem problem = make_problem(small_sizes(4, 5), "mask=\"q % 2 == 0\"");
  problem.row_max = problem.max_logit = problem.grad_lse = true;
  Example example = filled(problem);
  example.forward_and_backward();
  for (const std::int64_t row : {1, 3}) {
    EXPECT_EQ(example.o.get({0, 0, row, 0}), 0);
    EXPECT_EQ(example.lse.get({0, 0, row}), -infinity);
    EXPECT_EQ(example.row_max.get({0, 0, row}), -infinity);
    EXPECT_EQ(example.grad_q.get({0, 0, row, 1}), 0);
  }
  for (const std::int64_t row : {0, 2}) {
    EXPECT_TRUE(std::isfinite(example.lse.get({0, 0, row})));
    EXPECT_NE(example.grad_q.get({0, 0, row, 1}), 0);
  }
}

// A row whose first hundred keys are masked is the same as one that never had them.
TEST(Trap26, RowsWhoseFirstTilesAreEmpty) {
  Example whole = filled(make_problem(small_sizes(3, 130), "mask=\"k >= 100\""));
  whole.forward_and_backward();
  Example part(make_problem(small_sizes(3, 30)));
  part.q.assign(whole.q.numbers());
  part.grad_o.assign(whole.grad_o.numbers());
  for (std::int64_t j = 0; j < 30; ++j) {
    for (std::int64_t d = 0; d < 3; ++d) part.k.set({0, 0, j, d}, whole.k.get({0, 0, 100 + j, d}));
    for (std::int64_t d = 0; d < 2; ++d) part.v.set({0, 0, j, d}, whole.v.get({0, 0, 100 + j, d}));
  }
  part.forward_and_backward();
  EXPECT_EQ(part.o.numbers(), whole.o.numbers());
  EXPECT_EQ(part.lse.numbers(), whole.lse.numbers());
  EXPECT_EQ(part.grad_q.numbers(), whole.grad_q.numbers());
  EXPECT_EQ(part.grad_k.get({0, 0, 7, 1}), whole.grad_k.get({0, 0, 107, 1}));
  EXPECT_EQ(whole.grad_k.get({0, 0, 99, 1}), 0);
}

TEST(Trap26, ZeroLengthSequences) {
  Problem problem = make_problem(small_sizes(3, 4));
  problem.sizes.b = 3;
  problem.has_q_lengths = problem.has_k_lengths = true;
  Example example = filled(problem);
  example.q_lengths = {0, 3, 2};
  example.k_lengths = {4, 0, 4};
  example.forward_and_backward();
  for (std::int64_t row = 0; row < 3; ++row) {
    for (const std::int64_t b : {0, 1}) {
      EXPECT_EQ(example.o.get({b, 0, row, 1}), 0);
      EXPECT_EQ(example.lse.get({b, 0, row}), -infinity);
      EXPECT_EQ(example.grad_q.get({b, 0, row, 0}), 0);
      EXPECT_EQ(example.grad_k.get({b, 0, row, 0}), 0);
      EXPECT_EQ(example.grad_v.get({b, 0, row, 0}), 0);
    }
  }
  EXPECT_NE(example.grad_k.get({2, 0, 0, 0}), 0);
}

TEST(Trap26, RowsInNoSequenceAreWritten) {
  Problem problem = make_problem(small_sizes(2, 2, 2, 1));
  problem.layout = Layout::Thd;
  problem.row_max = true;
  problem.sizes.b = 2, problem.sizes.t_q = 7, problem.sizes.t_k = 6;
  Example example = filled(problem);
  example.q_starts = {1, 3, 5};  // rows 0, 5 and 6 belong to nobody
  example.k_starts = {2, 3, 5};
  example.forward_and_backward();
  for (const std::int64_t row : {0, 5, 6}) {
    for (const std::int64_t h : {0, 1}) {
      EXPECT_EQ(example.o.get({0, h, row, 0}), 0);
      EXPECT_EQ(example.lse.get({h, row}), -infinity);
      EXPECT_EQ(example.row_max.get({h, row}), -infinity);
      EXPECT_EQ(example.grad_q.get({0, h, row, 2}), 0);
    }
  }
  for (const std::int64_t row : {0, 1, 5}) {
    EXPECT_EQ(example.grad_k.get({0, 0, row, 0}), 0);
    EXPECT_EQ(example.grad_v.get({0, 0, row, 0}), 0);
  }
  EXPECT_NE(example.grad_v.get({0, 0, 3, 0}), 0);
}

// Softcap is applied before the mask: what is masked weighs nothing, not exp(-cap).
TEST(Trap28, SoftcapDoesNotSoftenTheMask) {
  Example example = filled(make_problem(small_sizes(1, 3), R"p(mod="softcap(2)" mask="k == 1")p"));
  example.forward();
  EXPECT_EQ(example.o.get({0, 0, 0, 0}), example.v.get({0, 0, 1, 0}));
  const double s0 = example.q.get({0, 0, 0, 0}) * example.k.get({0, 0, 1, 0}) +
                    example.q.get({0, 0, 0, 1}) * example.k.get({0, 0, 1, 1}) +
                    example.q.get({0, 0, 0, 2}) * example.k.get({0, 0, 1, 2});
  EXPECT_NEAR(example.lse.get({0, 0, 0}), 2 * std::tanh(s0 / 2), 1e-14);
}

TEST(Trap29, TopLeftAndBottomRight) {
  const auto kept = [](std::int64_t sq, std::int64_t skv, const char* mask) {
    Example example(make_problem(small_sizes(sq, skv), std::string("mask=\"") + mask + "\""));
    example.forward();  // all s = 0: exp(lse) counts what is kept
    std::vector<int> counts;
    for (const double lse : example.lse.numbers()) {
      counts.push_back(static_cast<int>(std::lround(std::exp(lse))));
    }
    return counts;
  };
  EXPECT_EQ(kept(3, 5, "causal"), (std::vector{1, 2, 3}));
  EXPECT_EQ(kept(5, 3, "causal"), (std::vector{1, 2, 3, 3, 3}));
  EXPECT_EQ(kept(3, 5, "causal_bottom_right"), (std::vector{3, 4, 5}));
  EXPECT_EQ(kept(5, 3, "causal_bottom_right"), (std::vector{0, 0, 1, 2, 3}));
}

// Bottom-right goes by each sequence's own lengths.
TEST(Trap29, BottomRightWithLengths) {
  Problem problem = make_problem(small_sizes(4, 4), "mask=\"causal_bottom_right\"");
  problem.has_q_lengths = problem.has_k_lengths = true;
  Example example(problem);
  example.q_lengths = {2};
  example.k_lengths = {3};
  example.forward();
  EXPECT_NEAR(example.lse.get({0, 0, 0}), std::log(2.0), 1e-15);
  EXPECT_NEAR(example.lse.get({0, 0, 1}), std::log(3.0), 1e-15);
  EXPECT_EQ(example.lse.get({0, 0, 2}), -infinity);
}

// NaN and Inf in what is masked change no bit of anything.
TEST(Trap30, NaNInMaskedKeysGoesNowhere) {
  for (const std::string formulas :
       {R"p(mask="k != 2")p", R"p(mod="k == 2 ? -inf : softcap(3)")p",
        R"p(mod="score + t[k]" mask="q - k < 2 && k != 2" tensor="t:f32[Skv]")p"}) {
    Example clean = filled(make_problem(small_sizes(4, 5), formulas));
    Example dirty = filled(make_problem(small_sizes(4, 5), formulas));
    for (const double poison : {nan, infinity, -infinity}) {
      for (std::int64_t d = 0; d < 2; ++d) {
        dirty.k.set({0, 0, 2, d}, poison);
        dirty.v.set({0, 0, 2, d}, poison);
      }
      clean.forward_and_backward();
      dirty.forward_and_backward();
      EXPECT_EQ(clean.o.numbers(), dirty.o.numbers());
      EXPECT_EQ(clean.lse.numbers(), dirty.lse.numbers());
      EXPECT_EQ(clean.grad_q.numbers(), dirty.grad_q.numbers());
      EXPECT_EQ(clean.grad_k.numbers(), dirty.grad_k.numbers());
      EXPECT_EQ(clean.grad_v.numbers(), dirty.grad_v.numbers());
    }
  }
}

// What is kept does take a NaN along, and only into its own rows.
TEST(Trap30, NaNInKeptKeysIsNotHidden) {
  Example example = filled(make_problem(small_sizes(3, 3), "mask=\"causal\""));
  example.v.set({0, 0, 1, 0}, nan);
  example.forward();
  EXPECT_TRUE(std::isfinite(example.o.get({0, 0, 0, 0})));
  EXPECT_TRUE(std::isnan(example.o.get({0, 0, 1, 0})));
  EXPECT_TRUE(std::isnan(example.o.get({0, 0, 2, 0})));
  EXPECT_TRUE(std::isfinite(example.o.get({0, 0, 2, 1})));
}

}  // namespace
}  // namespace fovea::test

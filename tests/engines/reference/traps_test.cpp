// Mistakes that other attention libraries made, one test each.
#include <gtest/gtest.h>
#include <cmath>
#include <limits>

#include "tests/engines/reference/example.h"

namespace fovea::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

bool all_equal(const Array& array, double value) {
  for (const double number : array.numbers()) {
    if (number != value) return false;
  }
  return array.count() > 0;
}

// Odd lengths with captured tensors exactly as long; the red zones of Example watch both sides.
TEST(Traps, NothingIsReadOrWrittenPastTheEnd) {
  for (const std::int64_t length : {1, 7, 63, 65}) {
    Problem problem = make_problem(small_sizes(length, length),
                                   R"p(mod="score + bias[q, k] + edge[k + 1] + edge[q - 1]" )p"
                                   R"p(tensor="bias:f32[Sq,Skv]" tensor="edge:f32[Skv]")p");
    problem.has_q_lengths = problem.has_k_lengths = true;
    problem.grad_lse = true;
    Example example = filled(problem);
    example.q_lengths = example.k_lengths = {static_cast<std::int32_t>(length)};
    example.grad_o.fill(0);  // then sum(ds) over a row is dlse
    example.grad_lse.fill(1);
    example.forward_and_backward();
    double sum = 0;
    for (const double number : example.tensor("edge").gradient.numbers()) sum += number;
    EXPECT_NEAR(sum, 2.0 * static_cast<double>(length), 1e-9);  // two loads a score, clamped
    for (const double number : example.tensor("bias").gradient.numbers()) {
      EXPECT_TRUE(number > 0) << "every score has its own bias";
    }
  }
}

TEST(Traps, ModifiersAreNotEvaluatedPastALength) {
  Problem problem =
      make_problem(small_sizes(4, 4), R"p(mod="score + bias[q, k]" tensor="bias:f32[4,4]")p");
  problem.has_q_lengths = problem.has_k_lengths = true;
  Example example = filled(problem);
  example.q_lengths = {3};
  example.k_lengths = {2};
  Array& bias = example.tensor("bias").value;
  for (std::int64_t i = 0; i < 4; ++i) {
    bias.set({i, 2}, nan), bias.set({i, 3}, nan), bias.set({3, i}, nan);
  }
  example.forward_and_backward();
  const Array& gradient = example.tensor("bias").gradient;
  for (std::int64_t i = 0; i < 4; ++i) {
    for (std::int64_t j = 0; j < 4; ++j) {
      EXPECT_EQ(gradient.get({i, j}) != 0, i < 3 && j < 2) << i << ' ' << j;
    }
  }
}

// Under GQA and MQA, h is the query head: in the formula, its gradient, sinks and max_logit.
TEST(Traps, TheHeadIsTheQueryHead) {
  for (const std::int64_t hkv : {1, 2, 3, 6}) {
    Problem problem = make_problem(small_sizes(2, 1, 6, hkv),
                                   R"p(mod="t[h] + 100 * h + 0 * score" tensor="t:f32[H]")p");
    problem.max_logit = problem.grad_lse = true;
    Example example = filled(problem);
    example.forward_and_backward();
    for (std::int64_t h = 0; h < 6; ++h) {
      const double s = example.tensor("t").value.get({h}) + 100.0 * static_cast<double>(h);
      EXPECT_NEAR(example.lse.get({0, h, 0}), s, 1e-12);
      EXPECT_NEAR(example.max_logit.get({h}), s, 1e-12);
      const double sum = example.grad_lse.get({0, h, 0}) + example.grad_lse.get({0, h, 1});
      EXPECT_NEAR(example.tensor("t").gradient.get({h}), sum, 1e-12);
      EXPECT_EQ(example.o.get({0, h, 0, 0}), example.v.get({0, h / (6 / hkv), 0, 0}));
    }
  }
}

TEST(Traps, AnUnusedCapturedTensorGetsZeros) {
  Example example =
      filled(make_problem(small_sizes(3, 3), R"p(mod="score + used[k]" tensor="used:f32[Skv]" )p"
                                             R"p(tensor="unused:f32[H,4]" scalar="spare=2")p"));
  example.forward_and_backward();
  EXPECT_TRUE(all_equal(example.tensor("unused").gradient, 0));
  EXPECT_EQ(example.scalar_gradient("spare"), 0);
  EXPECT_NE(example.tensor("used").gradient.number(0), 0);
}

TEST(Traps, AScoreThatTheModifierIgnores) {
  Example example =
      filled(make_problem(small_sizes(3, 4), R"p(mod="t[q, k]" tensor="t:f32[Sq,Skv]")p"));
  example.forward_and_backward();
  EXPECT_TRUE(all_equal(example.grad_q, 0));
  EXPECT_TRUE(all_equal(example.grad_k, 0));
  EXPECT_NE(example.grad_v.number(0), 0);
  EXPECT_NE(example.tensor("t").gradient.number(0), 0);
}

TEST(Traps, AZeroDimensionalTensor) {
  Problem problem = make_problem(small_sizes(2, 3), R"p(mod="score + t[]" tensor="t:f32[]")p");
  problem.grad_lse = true;
  Example example = filled(problem);
  example.forward_and_backward();
  const double sum = example.grad_lse.number(0) + example.grad_lse.number(1);
  EXPECT_NEAR(example.tensor("t").gradient.number(0), sum, 1e-13);  // d lse / d t = 1
}

TEST(Traps, LseIsTheNaturalLogarithm) {
  Example example(make_problem(small_sizes(1, 2)));
  example.forward();
  EXPECT_DOUBLE_EQ(example.lse.number(0), 0.693147180559945309);
}

// A sink joins the sum only: no maximum sees it, no modifier, mask or dropout touches it.
TEST(Traps, ASinkIsNotAScore) {
  Problem problem = make_problem(small_sizes(2, 3), R"p(mod="softcap(1)" mask="k != 1")p");
  problem.row_max = problem.max_logit = true;
  Example without = filled(problem);
  without.forward();
  problem.sink = true;
  Example with = filled(problem);
  with.sink.fill(50);
  with.forward();
  EXPECT_EQ(with.row_max.numbers(), without.row_max.numbers());
  EXPECT_EQ(with.max_logit.numbers(), without.max_logit.numbers());
  EXPECT_NEAR(with.lse.number(0), 50, 1e-12);
  const double share = std::exp(without.lse.number(0) - with.lse.number(0));
  EXPECT_NEAR(with.o.number(0), share * without.o.number(0), 1e-30);
  with.sink.fill(-infinity);  // a sink of weight 0 is none
  with.forward();
  EXPECT_EQ(with.o.numbers(), without.o.numbers());
  EXPECT_EQ(with.lse.numbers(), without.lse.numbers());
}

// ---- masks ----

// A row whose first hundred keys are masked is the same as one that never had them.
TEST(Traps, RowsWhoseFirstTilesAreEmpty) {
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

TEST(Traps, ZeroLengthSequences) {
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

TEST(Traps, RowsInNoSequenceAreWritten) {
  Problem problem = make_problem(small_sizes(2, 2, 2, 1));
  problem.layout = Layout::Thd;
  problem.row_max = true;
  problem.sizes.b = 2, problem.sizes.t_q = 7, problem.sizes.t_k = 6;
  Example example = filled(problem);
  example.q_starts = {1, 3, 5};  // rows 0, 5 and 6 belong to no sequence
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
TEST(Traps, SoftcapDoesNotSoftenTheMask) {
  Example example = filled(make_problem(small_sizes(1, 3), R"p(mod="softcap(2)" mask="k == 1")p"));
  example.forward();
  EXPECT_EQ(example.o.get({0, 0, 0, 0}), example.v.get({0, 0, 1, 0}));
  const double s0 = example.q.get({0, 0, 0, 0}) * example.k.get({0, 0, 1, 0}) +
                    example.q.get({0, 0, 0, 1}) * example.k.get({0, 0, 1, 1}) +
                    example.q.get({0, 0, 0, 2}) * example.k.get({0, 0, 1, 2});
  EXPECT_NEAR(example.lse.get({0, 0, 0}), 2 * std::tanh(s0 / 2), 1e-14);
}

TEST(Traps, TopLeftAndBottomRight) {
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
TEST(Traps, BottomRightWithLengths) {
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
TEST(Traps, NaNInMaskedKeysGoesNowhere) {
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
TEST(Traps, NaNInKeptKeysIsNotHidden) {
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

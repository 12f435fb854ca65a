// Diagonals found in masks: what is taken out, and what is left, must mean the mask together, at
// every point.
#include <gtest/gtest.h>

#include <cstdio>
#include <random>

#include "engines/cudnn/match.h"
#include "ir/build.h"
#include "ir/eval.h"
#include "ir/parse.h"
#include "tests/ir/random.h"

namespace fovea::cudnn {
namespace {

using ir::Expr;

Expr mask_of(const std::string& text) { return ir::parse_program("mask=\"" + text + "\"").mask(); }

bool holds(const Expr& e, const ir::Point<float>& at) { return ir::evaluate(e, at).b; }

void expect_same(const Expr& mask, const MaskSizes& sizes, const MatchedMask& matched) {
  Expr again = formula_of(matched.band);
  for (const Expr& one : matched.rest) again = ir::and_(again, one);
  std::mt19937 random(20261115);
  for (int i = 0; i < 400; ++i) {
    ir::Point<float> at;
    const auto below = [&](std::int64_t n) {
      return static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(n));
    };
    at.Sq = sizes.lengths ? 1 + below(sizes.sq) : static_cast<std::int32_t>(sizes.sq);
    at.Skv = sizes.lengths ? 1 + below(sizes.skv) : static_cast<std::int32_t>(sizes.skv);
    at.q = below(at.Sq);
    at.k = below(at.Skv);
    ASSERT_EQ(holds(mask, at), holds(again, at))
        << "q " << at.q << " k " << at.k << " Sq " << at.Sq << " Skv " << at.Skv;
  }
}

struct Row {
  const char* mask;
  MaskSizes sizes;
  std::optional<std::int64_t> left, right;
  bool bottom_right;
  std::size_t rest;
};

class Match : public testing::TestWithParam<Row> {};

TEST_P(Match, FindsTheBandAndNothingElse) {
  const Row& row = GetParam();
  const Expr mask = mask_of(row.mask);
  const MatchedMask matched = match_mask(mask, row.sizes);
  EXPECT_EQ(matched.band.left, row.left);
  EXPECT_EQ(matched.band.right, row.right);
  EXPECT_EQ(matched.band.bottom_right, row.bottom_right);
  EXPECT_EQ(matched.rest.size(), row.rest);
  expect_same(mask, row.sizes, matched);
}

constexpr MaskSizes square{64, 64, false}, wide{40, 100, false}, tall{100, 40, false};
constexpr MaskSizes ragged{60, 80, true};
INSTANTIATE_TEST_SUITE_P(
    Masks, Match,
    testing::Values(
        Row{"q >= k", square, {}, 0, false, 0}, Row{"k <= q", square, {}, 0, false, 0},
        Row{"!(q < k)", square, {}, 0, false, 0}, Row{"k - q <= 0", square, {}, 0, false, 0},
        Row{"q + 5 > k", square, {}, 4, false, 0}, Row{"q > k", square, {}, {}, false, 1},
        Row{"q > k + 2", square, {}, {}, false, 1}, Row{"q < k", square, {}, {}, false, 1},
        Row{"q >= k && q - k < 16", square, 16, 0, false, 0},
        Row{"q - k < 16", square, 16, {}, false, 0}, Row{"k - q < 9", square, {}, 8, false, 0},
        Row{"q - k < 16 && k - q < 9", square, 16, 8, false, 0},
        Row{"q - k <= 0", square, 1, {}, false, 0}, Row{"q - k < 0", square, {}, {}, false, 1},
        Row{"q + (Skv - Sq) >= k", wide, {}, 60, false, 0},
        Row{"q + (Skv - Sq) >= k", square, {}, 0, false, 0},
        Row{"q + (Skv - Sq) >= k", tall, {}, {}, false, 1},
        Row{"q + (Skv - Sq) >= k", ragged, {}, 0, true, 0},
        Row{"q + Skv >= k + Sq && q + Skv - Sq - k < 20", ragged, 20, 0, true, 0},
        Row{"q >= k && q + (Skv - Sq) >= k", ragged, {}, 0, false, 1},
        Row{"q - k < 16", tall, {}, {}, false, 1}, Row{"2 * q >= 2 * k", square, {}, {}, false, 1},
        Row{"q >= k || k < 4", square, {}, {}, false, 1},
        Row{"q >= k && q // 8 == k // 8 && k != 3", square, {}, 0, false, 2},
        Row{"q >= k && q + 3 >= k", square, {}, 0, false, 1},
        Row{"q + k < 30", square, {}, {}, false, 1}, Row{"q >= h", square, {}, {}, false, 1},
        Row{"f32(q) >= f32(k)", square, {}, {}, false, 1}));

// Sums that i32 cannot hold wrap: they are no diagonals, whatever they look like.
TEST(Match, KnowsThatWholeNumbersWrap) {
  std::string lets = "let w0 = Sq + Skv; ", last = "w0";
  for (int i = 1; i < 24; ++i) {
    const std::string next = "w" + std::to_string(i);
    lets += "let " + next + " = " + last + " + " + last + "; ";
    last = next;
  }
  const Expr mask = mask_of(lets + "k + " + last + " <= q + " + last);
  const MaskSizes sizes{300, 301, false};
  const MatchedMask matched = match_mask(mask, sizes);
  EXPECT_FALSE(matched.band.any());
  expect_same(mask, sizes, matched);
}

TEST(Match, RandomMasksKeepTheirMeaning) {
  const std::uint64_t seed = test::test_seed();
  std::printf("FOVEA_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::mt19937 random(static_cast<std::uint32_t>(seed));
  for (int i = 0; i < 300; ++i) {
    std::string text;
    const int terms = 1 + static_cast<int>(random() % 3);
    for (int t = 0; t < terms; ++t) {
      const std::string c = std::to_string(static_cast<int>(random() % 41) - 20);
      const std::array<std::string, 6> forms{"q + " + c + " >= k", "q - k < " + c,
                                             "k - q <= " + c,      "k < q + (Skv - Sq) - " + c,
                                             "q % 3 == k % 3",     "!(q - k > " + c + ")"};
      text += (t == 0 ? "" : random() % 4 == 0 ? " || " : " && ") + forms[random() % forms.size()];
    }
    const MaskSizes sizes{1 + static_cast<std::int64_t>(random() % 90),
                          1 + static_cast<std::int64_t>(random() % 90), random() % 2 == 0};
    const Expr mask = mask_of(text);
    SCOPED_TRACE(text + ", Sq " + std::to_string(sizes.sq) + ", Skv " + std::to_string(sizes.skv));
    expect_same(mask, sizes, match_mask(mask, sizes));
  }
}

}  // namespace
}  // namespace fovea::cudnn

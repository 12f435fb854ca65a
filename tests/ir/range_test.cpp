// Ranges never miss a value, and are exact where ir/range.h says so.
#include "ir/range.h"

#include <gtest/gtest.h>

#include <iostream>
#include <limits>

#include "ir/eval.h"
#include "ir/parse.h"
#include "tests/ir/targets.h"

namespace fovea::test {
namespace {

using namespace ir;

TEST(Range, HoldsEveryValueOfRandomFormulas) {
  const std::uint64_t seed = test_seed();
  long samples = 0, decided = 0;
  for (std::uint64_t i = 0; samples < static_cast<long>(cases(1500000)); ++i) {
    Random random(seed, i);
    const RangeCase result = run_range_case(random, 5, 15);
    ASSERT_EQ(result.failure, "") << seed_text(seed, i);
    samples += result.samples, decided += result.decided;
  }
  std::cout << samples << " samples, " << decided << " of them where the range says something\n";
  EXPECT_GT(decided, samples / 4);
}

struct Grid {
  std::int32_t q0 = 0, k0 = 0, size = 9;  // positions q0 .. q0 + size - 1, and k alike
  std::int32_t Sq = 9, Skv = 9;
};

// Every box in a grid: what range says, against all positions in it.
struct Verdict {
  long boxes = 0, vague = 0;  // called mixed, but they are not
};
Verdict all_boxes(const std::string& text, const Grid& grid) {
  const Expr mask = parse_formula(text, {}, Role::Mask);
  const auto n = static_cast<std::size_t>(grid.size);
  // kept[i][j]: how many are kept among the first i rows and j columns.
  std::vector<std::vector<int>> kept(n + 1, std::vector<int>(n + 1, 0));
  Evaluator<float> evaluator(mask);
  Point<float> point;
  point.Sq = grid.Sq, point.Skv = grid.Skv;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      point.q = grid.q0 + static_cast<std::int32_t>(i);
      point.k = grid.k0 + static_cast<std::int32_t>(j);
      evaluator(point);
      kept[i + 1][j + 1] =
          kept[i][j + 1] + kept[i + 1][j] - kept[i][j] + (evaluator.value().b ? 1 : 0);
    }
  }
  const Ranges ranges(mask);
  Ranges::Scratch scratch;
  Verdict verdict;
  Box box;
  box.Sq = IntInterval::of(grid.Sq), box.Skv = IntInterval::of(grid.Skv);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      for (std::size_t i2 = i; i2 < n; ++i2) {
        for (std::size_t j2 = j; j2 < n; ++j2) {
          box.q = {grid.q0 + static_cast<std::int64_t>(i), grid.q0 + static_cast<std::int64_t>(i2)};
          box.k = {grid.k0 + static_cast<std::int64_t>(j), grid.k0 + static_cast<std::int64_t>(j2)};
          const int count = kept[i2 + 1][j2 + 1] - kept[i][j2 + 1] - kept[i2 + 1][j] + kept[i][j];
          const int all = static_cast<int>((i2 - i + 1) * (j2 - j + 1));
          const TileClass truth = count == 0     ? TileClass::Empty
                                  : count == all ? TileClass::Full
                                                 : TileClass::Mixed;
          const TileClass said = ranges.classify(box, scratch);
          ++verdict.boxes;
          if (said == TileClass::Mixed && truth != TileClass::Mixed) ++verdict.vague;
          EXPECT_TRUE(said == truth || said == TileClass::Mixed)
              << text << " q=" << box.q.lo << ".." << box.q.hi << " k=" << box.k.lo << ".."
              << box.k.hi << " keeps " << count << " of " << all;
        }
      }
    }
  }
  return verdict;
}

void expect_exact(const std::string& text, const Grid& grid = {}) {
  EXPECT_EQ(all_boxes(text, grid).vague, 0) << text;
}

std::string number(int n) { return std::to_string(n); }

TEST(Range, IsExactForStockMasks) {
  expect_exact("causal");
  expect_exact("k > q");
  for (int sq = 1; sq <= 9; sq += 2) {
    for (int skv = 1; skv <= 9; skv += 2) {
      expect_exact("causal_bottom_right", {.Sq = sq, .Skv = skv});
    }
  }
  for (int n = 1; n <= 6; ++n) {
    expect_exact("sliding(" + number(n) + ")");
    expect_exact("prefix(" + number(n) + ")");
    expect_exact("abs(q - k) < " + number(n));
  }
}

TEST(Range, IsExactThroughDivisionAndRemainder) {
  for (int n = 1; n <= 6; ++n) {
    expect_exact("q // " + number(n) + " == k // " + number(n));
    expect_exact("q // " + number(n) + " >= k // " + number(n));
    expect_exact("(q - k) // " + number(n) + " < 2");
    for (int r = 0; r < n; ++r) {
      expect_exact("(q - k) % " + number(n) + " == " + number(r));
      expect_exact("(q - k) % " + number(n) + " != " + number(r));
      expect_exact("k % " + number(n) + " == " + number(r));
    }
  }
}

TEST(Range, IsExactForLinearComparisons) {
  for (const char* text : {"2 * q - 3 * k >= 4", "q + k < 9", "q - k >= q - 5", "q < k + q - 3",
                           "3 * (q - k) + 2 * k > q", "-q <= -k", "q - (k - 2) >= 1", "q == k",
                           "q != k + 2", "q + k == 8"}) {
    expect_exact(text);
  }
}

// Positions at the ends of i32: differences are taken in unbounded integers if nothing wraps,
// and the wrapped values are known if something does.
TEST(Range, IsExactAtTheEndsOfTheIntegers) {
  constexpr std::int32_t top = std::numeric_limits<std::int32_t>::max() - 8;
  constexpr std::int32_t bottom = std::numeric_limits<std::int32_t>::min();
  for (const Grid grid :
       {Grid{top, top}, Grid{bottom, bottom}, Grid{top, bottom}, Grid{bottom, top}}) {
    expect_exact("causal", grid);
    expect_exact("q == k", grid);
    expect_exact("k % 4 == 1", grid);
    for (const char* text :
         {"sliding(3)", "q + 3 >= k", "q + k < 9", "q - k < 5", "2 * q >= k", "(q - k) % 3 == 1",
          "-q < k", "abs(q) > 5", "q // -1 < k", "q + 5 - k > 2", "(q << 1) < k", "q * q == k"}) {
      all_boxes(text, grid);  // sound
    }
  }
}

// Conjunctions are judged part by part. A causal window is still exact (its parts speak of one
// difference, and overlap); these are not, only sound: over q - k = 29 .. 31 the first has no
// multiple of 4 below 32, but parts that each can hold.
TEST(Range, IsSoundForOtherConjunctions) {
  const Grid grid{.q0 = 24, .size = 12};
  EXPECT_EQ(all_boxes("q >= k && q - k < 4", grid).vague, 0);
  for (const char* text :
       {"q >= k && (q - k) % 4 == 0 && q - k < 32", "k < 4 && q >= k || (q - k) % 3 == 0",
        "q % 2 == k % 2", "2 * q == 2 * k + 1", "(q ^ k) < 8", "(q & 3) == (k & 3)", "q * k < 40",
        "i32(f32(q) / 3.0) == i32(f32(k) / 3.0)", "exp(f32(q - k)) < 2.0", "sqrt(f32(q)) >= f32(k)",
        "min(q, k) > 5", "clamp(q - k, 0, 3) == 3", "q > 26 ? k > 3 : k < 5",
        "(q >> 2) == (k >> 2)"}) {
    const Verdict verdict = all_boxes(text, grid);
    EXPECT_LT(verdict.vague, verdict.boxes) << text;
  }
}

TEST(Range, UsesTheMinimaOfLoadsForDocuments) {
  Declarations declared;
  declare(declared, parse_tensor("doc:i32[B,Sq]"));
  const Expr mask = parse_formula("doc[b, q] == doc[b, k] && q >= k", declared, Role::Mask);
  const std::vector<std::int32_t> docs{0, 0, 0, 1, 1, 2, 2, 2, 2, 3};
  const std::int64_t extents[] = {1, 10};
  const TensorView tensors[] = {TensorView::dense(docs.data(), DType::I32, extents)};
  const Ranges ranges(mask);
  const LoadRanges searched(ranges);
  Ranges::Scratch scratch;
  long empty = 0, full = 0, vague = 0;
  for (std::int32_t q = 0; q < 10; ++q) {
    for (std::int32_t q2 = q; q2 < 10; ++q2) {
      for (std::int32_t k = 0; k < 10; ++k) {
        for (std::int32_t k2 = k; k2 < 10; ++k2) {
          Box box;
          box.b = {0, 0}, box.q = {q, q2}, box.k = {k, k2};
          const std::vector<Range> loads = searched.find(box, tensors);
          box.loads = loads;
          int kept = 0;
          for (std::int32_t i = q; i <= q2; ++i) {
            for (std::int32_t j = k; j <= k2; ++j) {
              kept +=
                  docs[static_cast<std::size_t>(i)] == docs[static_cast<std::size_t>(j)] && i >= j;
            }
          }
          const TileClass said = ranges.classify(box, scratch);
          const bool all = kept == (q2 - q + 1) * (k2 - k + 1);
          EXPECT_TRUE(said != TileClass::Empty || kept == 0);
          EXPECT_TRUE(said != TileClass::Full || all);
          empty += said == TileClass::Empty, full += said == TileClass::Full;
          vague += said == TileClass::Mixed && (kept == 0 || all);
        }
      }
    }
  }
  EXPECT_GT(empty, 0);
  EXPECT_GT(full, 0);
  EXPECT_EQ(vague, 0);  // sorted documents: intervals say everything
}

TEST(Range, LoadsOfFloatsWithNaN) {
  Declarations declared;
  declare(declared, parse_tensor("t:f32[Skv]"));
  const Expr mask = parse_formula("t[k] < 1.0", declared, Role::Mask);
  const std::vector<float> data{0.5f, NAN, -INFINITY, 2.0f, NAN, NAN};
  const std::int64_t extents[] = {6};
  const TensorView tensors[] = {TensorView::dense(data.data(), DType::F32, extents)};
  const Ranges ranges(mask);
  const LoadRanges searched(ranges);
  Ranges::Scratch scratch;
  const auto classify = [&](std::int64_t lo, std::int64_t hi) {
    Box box;
    box.k = {lo, hi};
    const std::vector<Range> loads = searched.find(box, tensors);
    box.loads = loads;
    return ranges.classify(box, scratch);
  };
  EXPECT_EQ(classify(0, 0), TileClass::Full);
  EXPECT_EQ(classify(0, 1), TileClass::Mixed);
  EXPECT_EQ(classify(4, 5), TileClass::Empty);
  EXPECT_EQ(classify(3, 5), TileClass::Empty);
  EXPECT_EQ(classify(5, 100), TileClass::Empty);  // clamped
  EXPECT_EQ(classify(2, 2), TileClass::Full);
}

TEST(Range, UnknownsMayBeAnything) {
  Declarations declared;
  declare(declared, parse_scalar("n:i32"));
  declare(declared, parse_scalar("x"));
  const Range n = bound(parse_formula("n", declared), Box{});
  EXPECT_EQ(n.i, IntInterval{});
  const Range x = bound(parse_formula("x", declared), Box{});
  EXPECT_TRUE(x.f.nan && std::isinf(x.f.lo) && std::isinf(x.f.hi));
  EXPECT_EQ(bound(parse_formula("score", {}), Box{}).f.nan, true);
  Ranges::Scratch scratch;
  EXPECT_EQ(Ranges(parse_formula("q - k < n", declared)).classify(Box{}, scratch),
            TileClass::Mixed);
}

}  // namespace
}  // namespace fovea::test

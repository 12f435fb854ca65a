// A walk never leaves out a tile of which something is seen, never calls one full that is not, and
// looks at few nodes where masks are regular.
#include "engines/cpu/tiles/tiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "ir/eval.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/program.h"
#include "tests/engines/cpu/guarded_memory.h"
#include "tests/ir/random_point.h"

namespace fovea::test {
namespace {

using namespace ir;

// One walk over tiles, checked against every score of every tile. Shared by the tests of tiles.
struct TileCase {
  ir::Program program;
  int tile_columns = 1;
  cpu::KeySequence sequence;
  cpu::RowBlock block;
  int rows = 1;  // of the block: q_last = q_first + rows - 1 may have wrapped
};

struct TileResult {
  std::string failure;        // empty: sound
  long tiles = 0, given = 0;  // in the block; that the walk gave
  long full = 0, vague = 0;   // given as full; given though nothing in it is seen
  long missed_full = 0;       // not given as full, though the mask keeps all of it
  long visited = 0;           // nodes of the tree
};

constexpr float infinity = std::numeric_limits<float>::infinity();

std::int32_t wrap(std::int64_t x) { return static_cast<std::int32_t>(x); }

struct Truth {
  bool seen = false;     // some score is kept and can be more than -inf
  bool all_kept = true;  // by the mask
};

class BruteForce {
 public:
  explicit BruteForce(const TileCase& test) : test_(test) {
    if (test.program.mask()) mask_.emplace(test.program.mask());
    if (test.program.mod()) mod_.emplace(test.program.mod());
    const cpu::KeySequence& s = test.sequence;
    point_.b = s.b, point_.B = s.B, point_.H = s.H, point_.Hkv = s.Hkv;
    point_.Sq = s.Sq, point_.Skv = s.Skv;
    point_.scalars = s.scalars, point_.tensors = s.tensors;
  }

  Truth tile(int number) {
    Truth truth;
    const cpu::KeySequence& s = test_.sequence;
    const std::int64_t first = std::int64_t{number} * test_.tile_columns;
    const std::int64_t last = std::min(first + test_.tile_columns, s.k_length);
    for (std::int64_t h = test_.block.h_first; h <= test_.block.h_last; ++h) {
      for (int i = 0; i < test_.rows; ++i) {
        for (std::int64_t k = first; k < last; ++k) {
          point_.h = wrap(h);
          point_.q = wrap(std::int64_t{test_.block.q_first} + i);
          point_.k = wrap(s.k_offset + k);
          look(truth);
        }
      }
    }
    return truth;
  }

 private:
  void look(Truth& truth) {
    if (mask_) {
      (*mask_)(point_);
      if (!mask_->value().b) {
        truth.all_kept = false;
        return;
      }
    }
    if (truth.seen) return;
    truth.seen = !mod_;
    for (const float score : {0.0f, 1.5f, -2.0f, infinity, -infinity, std::nanf("")}) {
      if (truth.seen) return;
      point_.score = score;
      (*mod_)(point_);
      truth.seen = mod_->value().f != -infinity;
    }
  }

  const TileCase& test_;
  std::optional<Evaluator<float>> mask_, mod_;
  Point<float> point_;
};

void count(TileResult& result, BruteForce& brute, const cpu::Tile* given, int number) {
  const Truth truth = brute.tile(number);
  ++result.tiles;
  const std::string name = "tile " + std::to_string(number);
  if (given == nullptr) {
    if (truth.seen) result.failure = name + " is seen, but was not given";
    return;
  }
  ++result.given;
  result.full += given->full ? 1 : 0;
  result.vague += truth.seen ? 0 : 1;
  result.missed_full += truth.all_kept && !given->full ? 1 : 0;
  if (given->full && !truth.all_kept) result.failure = name + " is not full";
}

// Fills a table for the sequence and walks the block.
TileResult run_tile_case(const TileCase& test) {
  const cpu::TileMap map(test.program, test.tile_columns);
  const GuardedMemory scratch(map.scratch_bytes());
  const GuardedMemory table(map.table_bytes(test.sequence.k_length));
  map.fill_table(test.sequence, table.data(), scratch.data());
  cpu::TileWalk walk(map, scratch.data());
  walk.start(test.sequence, table.data(), test.block);
  std::vector<cpu::Tile> given;
  for (cpu::Tile tile; given.size() < 1000 && walk.next(tile);) given.push_back(tile);

  TileResult result;
  BruteForce brute(test);
  std::size_t at = 0;
  const std::int64_t all = (test.sequence.k_length + test.tile_columns - 1) / test.tile_columns;
  const auto last = static_cast<int>(std::min<std::int64_t>(test.block.last_tile, all));
  for (int number = test.block.first_tile; number < last && result.failure.empty(); ++number) {
    const bool hit = at < given.size() && given[at].number == number;
    count(result, brute, hit ? &given[at] : nullptr, number);
    at += hit ? 1 : 0;
  }
  if (result.failure.empty() && at != given.size()) result.failure = "tiles out of order";
  if (!scratch.intact() || !table.intact()) result.failure = "wrote past its memory";
  result.visited = static_cast<long>(walk.visited());
  if (!result.failure.empty()) result.failure += "\n" + print(test.program);
  return result;
}

constexpr std::int32_t int_max = std::numeric_limits<std::int32_t>::max();

// Tensors of every kind that a mask may look at, with values that masks like.
class MaskData {
 public:
  MaskData(Random& random, std::int64_t heads, std::int64_t sq, std::int64_t skv) {
    std::int32_t document = 0;
    for (std::int64_t i = 0; i < 2 * skv; ++i) docs_.push_back(document += random.chance(15));
    for (std::int64_t i = 0; i < 2 * skv; ++i) ints_.push_back(random.between(-9, 9));
    for (std::int64_t i = 0; i < heads * skv; ++i) {
      floats_.push_back(random.chance(20) ? random_float(random) : random.normal());
    }
    for (std::int64_t i = 0; i < 2 * skv; ++i) {
      keep_[static_cast<std::size_t>(i)] = i % 7 != 0 && random.chance(80) ? 255 : 0;
    }
    for (std::int64_t i = 0; i < skv; ++i) {
      wide_.push_back(std::int64_t{random_int(random)} * (random.chance(50) ? 3 : 1));
    }
    for (std::size_t i = 0; i < 64; ++i) blocks_[i] = random.chance(30) ? 1 : 0;
    for (std::int64_t i = 0; i < heads * sq; ++i) rows_.push_back(random_float(random));
    for (std::size_t i = 0; i < 2; ++i) starts_[i] = random.between(-4, 20);
    const std::int64_t two = 2, eight = 8;
    view(docs_.data(), DType::I32, {two, skv});
    view(ints_.data(), DType::I32, {skv, two});
    view(floats_.data(), DType::F32, {heads, skv});
    view(keep_.data(), DType::Bool, {two, skv});
    view(wide_.data(), DType::I64, {skv});
    view(blocks_.data(), DType::Bool, {eight, eight});
    view(rows_.data(), DType::F32, {heads, sq});
    view(starts_.data(), DType::I32, {two});
    scalars_ = {{random.normal(), 0}, {0, random.between(-3, 12)}, {-INFINITY, 0}};
  }
  MaskData(const MaskData&) = delete;

  static const Declarations& declared() {
    static const auto* all = [] {
      auto* out = new Declarations;
      for (const char* text :
           {"doc:i32[B,Skv]", "num:i32[Skv,B]", "val:f32[H,Skv]", "keep:bool[B,Skv]",
            "wide:i64[Skv]", "blocks:bool[8,8]", "row:f32[H,Sq]", "start:i32[B]"}) {
        declare(*out, parse_tensor(text));
      }
      for (const char* text : {"x", "n:i32", "low"}) declare(*out, parse_scalar(text));
      return out;
    }();
    return *all;
  }
  std::span<const TensorView> tensors() const { return views_; }
  std::span<const ScalarValue> scalars() const { return scalars_; }

 private:
  void view(const void* data, DType type, std::vector<std::int64_t> extents) {
    views_.push_back(TensorView::dense(data, type, extents));
  }
  std::vector<std::int32_t> docs_, ints_;
  std::vector<float> floats_, rows_;
  std::array<std::uint8_t, 256> keep_{};
  std::vector<std::int64_t> wide_;
  std::array<std::uint8_t, 64> blocks_{};
  std::array<std::int32_t, 2> starts_{};
  std::vector<TensorView> views_;
  std::vector<ScalarValue> scalars_;
};

std::string mask_text(Random& random, int depth) {
  if (depth > 0 && random.chance(55)) {
    const std::string a = mask_text(random, depth - 1), b = mask_text(random, depth - 1);
    switch (random.below(4)) {
      case 0: return "(" + a + " && " + b + ")";
      case 1: return "(" + a + " || " + b + ")";
      case 2: return "(!" + a + ")";
      default: return "(" + a + " ? " + b + " : q >= k)";
    }
  }
  const std::string n = std::to_string(random.between(-3, 20));
  const std::string m = std::to_string(random.between(1, 6));
  const std::vector<std::string> atoms{"(q >= k)",
                                       "(q - k < " + n + ")",
                                       "(q + " + n + " >= k)",
                                       "(k < " + n + ")",
                                       "(doc[b, q] == doc[b, k])",
                                       "(doc[b, k] <= " + n + ")",
                                       "(doc[b, k - " + n + "] > 2)",
                                       "(num[k, b] < " + n + ")",
                                       "(num[k // " + m + ", b] == 3)",
                                       "(val[h, k] < x)",
                                       "(val[h, k] + 0.5 > val[h, 0])",
                                       "keep[b, k]",
                                       "keep[b, doc[b, k] + start[b]]",
                                       "(wide[k] > 2000000000)",
                                       "(wide[k] + 5 < q)",
                                       "blocks[q // 8, k // " + m + "]",
                                       "(row[h, q] < x)",
                                       "(row[h, q] < val[h, k])",
                                       "(k >= start[b])",
                                       "(k < Skv - n)",
                                       "(q * " + n + " + h >= k * " + m + ")",
                                       "((q - k) % " + m + " == 0)",
                                       "(num[num[k, b], b] > 0)",
                                       "(wide[q - k] > 0)",
                                       "(k * 100000000 > q)"};
  return random.pick(atoms);
}

std::string mod_text(Random& random) {
  const std::string mask = mask_text(random, 1);
  const std::vector<std::string> mods{mask + " ? score : -inf",
                                      mask + " ? (q >= k ? -inf : score * 2.0) : score",
                                      "(" + mask + " ? score : -inf) + val[h, k]",
                                      "(" + mask + " ? score : low) - x",
                                      mask + " ? -inf : low",
                                      "score + val[h, k]",
                                      "(" + mask + " ? low : x) + score",
                                      "val[h, k] < 0.0 ? val[h, q] : score"};
  return random.pick(mods);
}

void place(Random& random, TileCase& test) {
  cpu::KeySequence& s = test.sequence;
  s.b = random.between(0, 1), s.B = 2, s.H = 3, s.Hkv = 1;
  s.h_first = 0, s.h_last = 2;
  s.Sq = 12, s.Skv = static_cast<std::int32_t>(s.k_length);
  test.tile_columns = random.pick(std::array{1, 2, 3, 4, 8, 16});
  test.rows = random.between(1, 6);
  cpu::RowBlock& block = test.block;
  block.h_first = random.between(0, 2), block.h_last = random.between(block.h_first, 2);
  const bool far = random.chance(15);
  const std::int32_t base = far ? int_max - random.between(0, 30) : random.between(-3, 3);
  block.q_first = base + (far ? 0 : random.between(0, 30));
  block.q_last = static_cast<std::int32_t>(std::int64_t{block.q_first} + test.rows - 1);
  s.k_offset = random.chance(70) ? base : random.chance(20) ? int_max - 20 : random.between(-5, 5);
  const auto tiles = static_cast<int>(s.k_length) / test.tile_columns + 1;
  block.last_tile = random.chance(60) ? tiles : random.between(0, tiles);
  block.first_tile = random.chance(60) ? 0 : random.between(0, block.last_tile);
  if (random.chance(30)) s.h_first = block.h_first, s.h_last = block.h_last;
}

TEST(Tiles, NeverMissWhatIsSeen) {
  const std::uint64_t seed = test_seed();
  TileResult sum;
  for (std::uint64_t i = 0; i < cases(30000); ++i) {
    Random random(seed, i);
    TileCase test;
    test.sequence.k_length = random.chance(3) ? 0 : random.between(1, 60);
    const MaskData data(random, 3, 12, std::max<std::int64_t>(test.sequence.k_length, 1));
    test.sequence.tensors = data.tensors(), test.sequence.scalars = data.scalars();
    const Declarations& declared = MaskData::declared();
    Expr mask, mod;
    if (random.chance(70)) mask = parse_formula(mask_text(random, 2), declared, Role::Mask);
    if (random.chance(40)) mod = parse_formula(mod_text(random), declared);
    test.program = Program::with_slots(declared, mod, mask, {});
    place(random, test);
    const TileResult result = run_tile_case(test);
    ASSERT_EQ(result.failure, "") << seed_text(seed, i);
    sum.tiles += result.tiles, sum.given += result.given, sum.full += result.full;
    sum.vague += result.vague, sum.missed_full += result.missed_full;
  }
  std::cout << sum.tiles << " tiles, " << sum.given << " given, " << sum.full << " of them full; "
            << sum.vague << " given in vain, " << sum.missed_full << " not known to be full\n";
  EXPECT_LT(sum.given, sum.tiles * 3 / 4);
  EXPECT_GT(sum.full, sum.tiles / 8);
}

TEST(Tiles, AreSoundForRandomPrograms) {
  const std::uint64_t seed = test_seed() + 1;
  for (std::uint64_t i = 0; i < cases(20000); ++i) {
    Random random(seed, i);
    TileCase test;
    test.sequence.k_length = random.between(0, 24);
    const RandomCaptured captured(random, random.chance(50) ? Values::Tame : Values::Any);
    test.sequence.tensors = captured.tensors(), test.sequence.scalars = captured.scalars();
    Expr mask, mod;
    if (random.chance(80)) {
      mask = build(draw(random, {.type = Type::Bool, .size = random.below(14), .score = false}));
    }
    if (random.chance(50)) mod = build(draw(random, {.size = random.below(14)}));
    test.program = Program::with_slots(random_declarations(), mod, mask, {});
    place(random, test);
    const TileResult result = run_tile_case(test);
    ASSERT_EQ(result.failure, "") << seed_text(seed, i);
  }
}

// A long sequence, and a block in it: what is given, and how many nodes were looked at.
TileResult long_case(const char* mod, const char* mask, std::int32_t q_first) {
  static std::vector<std::int32_t> documents(16384);
  for (std::size_t i = 0; i < documents.size(); ++i) {
    documents[i] = static_cast<std::int32_t>(i / 700);
  }
  Declarations declared;
  declare(declared, parse_tensor("doc:i32[Skv]"));
  TileCase test;
  const Expr mod_formula = mod != nullptr ? parse_formula(mod, declared) : Expr{};
  const Expr mask_formula = mask != nullptr ? parse_formula(mask, declared, Role::Mask) : Expr{};
  test.program = Program::with_slots(declared, mod_formula, mask_formula, {});
  const std::int64_t extents[] = {16384};
  const TensorView tensors[] = {TensorView::dense(documents.data(), DType::I32, extents)};
  test.sequence.tensors = tensors;
  test.sequence.k_length = test.sequence.Skv = test.sequence.Sq = 16384;
  test.tile_columns = 64;
  test.rows = 64;
  test.block = {0, 0, q_first, q_first + 63, 0, 256};
  TileResult result = run_tile_case(test);
  EXPECT_EQ(result.failure, "");
  return result;
}

TEST(Tiles, RegularMasksTakeFewNodes) {
  const TileResult causal = long_case(nullptr, "q >= k", 8192);
  EXPECT_EQ(causal.given, 129);
  EXPECT_EQ(causal.full, 128);
  EXPECT_LE(causal.visited, 17);

  const TileResult window = long_case(nullptr, "q >= k && q - k < 512", 10048);
  EXPECT_EQ(window.given, 9);
  EXPECT_EQ(window.full, 7);
  EXPECT_LE(window.visited, 40);

  const TileResult documents = long_case(nullptr, "doc[q] == doc[k] && q >= k", 12800);
  EXPECT_EQ(documents.vague, 0);
  EXPECT_LE(documents.given, 12);
  EXPECT_LE(documents.visited, 48);

  const TileResult modifier = long_case("q >= k ? score * 0.5 : -inf", nullptr, 8192);
  EXPECT_EQ(modifier.given, 129);
  EXPECT_EQ(modifier.full, 129);  // no mask hides anything: the modifier says it itself
  EXPECT_LE(modifier.visited, 17);
}

TEST(Tiles, WithoutAMaskAllAreFull) {
  const cpu::TileMap map(Program{}, 64);
  EXPECT_TRUE(map.hides_nothing());
  EXPECT_EQ(map.table_bytes(1 << 20), 0u);
  EXPECT_TRUE(cpu::TileMap(Program::with_slots({}, parse_formula("score * 2.0", {}), {}, {}), 8)
                  .hides_nothing());
  const Expr never = parse_formula("q > k && k > q && false", {}, Role::Mask);
  EXPECT_FALSE(cpu::TileMap(Program::with_slots({}, {}, never, {}), 8).hides_nothing());
  EXPECT_EQ(long_case(nullptr, nullptr, 0).full, 256);
  EXPECT_EQ(long_case(nullptr, "false", 0).given, 0);
}

}  // namespace
}  // namespace fovea::test

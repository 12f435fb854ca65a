// examples/formulas.txt means what its comments say: every formula against a few lines of C++ that
// share nothing with src/ir.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "base/words.h"
#include "ir/diff.h"
#include "ir/eval.h"
#include "ir/parse.h"
#include "ir/range.h"

namespace fovea::ir {
namespace {

constexpr int sizes_b = 2, sizes_h = 8, sizes_s = 256;

struct Position {
  int b, h, q, k;
};

// One line of the file: its name and its program, the keys of the problem around it stripped.
struct Example {
  std::string name;
  Program program;
};

std::vector<Example> read_examples() {
  std::ifstream file(FOVEA_SOURCE_DIR "/examples/formulas.txt");
  EXPECT_TRUE(file.is_open());
  static const std::set<std::string> program_keys{"mod", "mask", "bprop", "tensor", "scalar"};
  std::vector<Example> examples;
  std::string line, comment;
  while (std::getline(file, line)) {
    if (line.empty()) continue;
    if (line[0] == '#') {
      comment = line;
      continue;
    }
    std::string program;
    for (const Word& word : split_words(line)) {
      if (program_keys.contains(word.key)) program += join_word(word.key, word.value) + " ";
    }
    examples.push_back({comment.substr(2, comment.find(':') - 2), parse_program(program)});
  }
  return examples;
}

// Data for everything that a program captures, as an engine would bind it.
class CapturedData {
 public:
  explicit CapturedData(const Program& program) {
    std::mt19937 random(1);
    data_.resize(program.tensors().size());
    for (std::size_t slot = 0; slot < data_.size(); ++slot) {
      const TensorDecl& tensor = program.tensors()[slot];
      std::vector<std::int64_t> extents;
      for (const Extent& extent : tensor.extents) extents.push_back(size_of(extent));
      std::int64_t count = 1;
      for (const std::int64_t extent : extents) count *= extent;
      Data& data = data_[slot];
      for (std::int64_t i = 0; i < count; ++i) {
        data.reals.push_back(std::uniform_real_distribution<float>(0.1f, 2)(random));
        const bool per_token = extents.size() == 2;  // documents of 50 tokens; else lengths
        data.integers.push_back(static_cast<std::int32_t>(per_token ? i % sizes_s / 50 : 40 * i));
      }
      const bool real = loaded_type(tensor.dtype) == Type::F32;
      const void* values = real ? static_cast<const void*>(data.reals.data())
                                : static_cast<const void*>(data.integers.data());
      views_.push_back(TensorView::dense(values, tensor.dtype, extents));
      slots_[tensor.name] = slot;
    }
    for (const ScalarDecl& scalar : program.scalars()) {
      EXPECT_TRUE(scalar.value.has_value()) << scalar.name;
      const double value = scalar.value.value_or(0);
      scalars_.push_back({static_cast<float>(value), static_cast<std::int32_t>(value)});
    }
  }

  float real(const std::string& name, std::int64_t at) const {
    return data_[slots_.at(name)].reals[static_cast<std::size_t>(at)];
  }
  int integer(const std::string& name, std::int64_t at) const {
    return data_[slots_.at(name)].integers[static_cast<std::size_t>(at)];
  }

  template <class Real>
  Point<Real> point(const Position& p, Real score) const {
    return {score,   0,       p.b,     p.h,     p.q,      p.k,   sizes_b,
            sizes_h, sizes_h, sizes_s, sizes_s, scalars_, views_};
  }

 private:
  struct Data {
    std::vector<float> reals;
    std::vector<std::int32_t> integers;
  };

  static std::int64_t size_of(const Extent& extent) {
    switch (extent.kind) {
      case Extent::Kind::Number: return extent.number;
      case Extent::Kind::B: return sizes_b;
      case Extent::Kind::H:
      case Extent::Kind::Hkv: return sizes_h;
      case Extent::Kind::Sq:
      case Extent::Kind::Skv: return sizes_s;
    }
    return 0;
  }

  std::vector<Data> data_;
  std::vector<TensorView> views_;
  std::vector<ScalarValue> scalars_;
  std::map<std::string, std::size_t> slots_;
};

using Mod = std::function<double(double score, const Position&, const CapturedData&)>;
using Mask = std::function<bool(const Position&, const CapturedData&)>;

double same_score(double score, const Position&, const CapturedData&) { return score; }
bool keep_all(const Position&, const CapturedData&) { return true; }
bool causal(const Position& p, const CapturedData&) { return p.k <= p.q; }

// As in the T5 code that people run: 32 buckets, bidirectional, at most distance 128.
int t5_bucket(int relative) {
  const int distance = std::abs(relative);
  int bucket = relative > 0 ? 16 : 0;
  if (distance < 8) return bucket + distance;
  const auto steps = static_cast<int>(std::log(static_cast<float>(distance) / 8.0f) /
                                      static_cast<float>(std::log(16.0)) * 8.0f);
  return bucket + std::min(8 + steps, 15);
}

// The 7 pixels around `at` in a row of 16, shifted inwards at its ends.
bool near_pixel(int at, int other) {
  const int first = std::min(std::max(at - 3, 0), 16 - 7);
  return other >= first && other < first + 7;
}

const std::map<std::string, std::pair<Mod, Mask>>& meanings() {
  using P = const Position&;
  using C = const CapturedData&;
  static const std::map<std::string, std::pair<Mod, Mask>> table{
      {"softcap", {[](double s, P, C) { return 30 * std::tanh(s / 30); }, keep_all}},
      {"alibi",
       {[](double s, P p, C) { return s - std::pow(2.0, -(p.h + 1)) * (p.q - p.k); }, causal}},
      {"relative bias",
       {[](double s, P p, C c) { return s + c.real("table", p.h * 511 + p.q - p.k + 255); },
        keep_all}},
      {"causal", {same_score, causal}},
      {"sliding window", {same_score, [](P p, C) { return p.k <= p.q && p.k > p.q - 64; }}},
      {"prefix-LM",
       {same_score, [](P p, C c) { return p.k <= p.q || p.k < c.integer("lengths", p.b); }}},
      {"document mask",
       {same_score,
        [](P p, C c) {
          const int row = p.b * sizes_s;
          return p.k <= p.q && c.integer("doc", row + p.q) == c.integer("doc", row + p.k);
        }}},
      {"dilated window",
       {same_score,
        [](P p, C) {
          for (int back = 0; back < 128; back += 4) {
            if (p.k == p.q - back) return true;
          }
          return false;
        }}},
      {"T5 bucket bias",
       {[](double s, P p, C c) { return s + c.real("table", t5_bucket(p.k - p.q) * 8 + p.h); },
        keep_all}},
      {"tanh-gated distance",
       {[](double s, P p, C c) {
          return s - c.real("strength", p.h) * std::tanh(std::abs(p.q - p.k) / 32.0);
        },
        keep_all}},
      {"causal softcap with slopes",
       {[](double s, P p, C c) {
          return 30 * std::tanh(s / 30) - c.real("slopes", p.h) * (p.q - p.k);
        },
        causal}},
      {"learned temperature",
       {[](double s, P p, C c) { return s * std::min(std::exp(c.real("log_scale", p.h)), 100.0f); },
        keep_all}},
      {"neighbourhood",
       {same_score,
        [](P p, C) { return near_pixel(p.q / 16, p.k / 16) && near_pixel(p.q % 16, p.k % 16); }}},
      {"distance decay",
       {[](double s, P p, C c) {
          const double rate = c.real("rate", p.h);
          return s - c.real("amount", p.h) * std::log(1 + rate * std::abs(p.q - p.k));
        },
        causal}},
  };
  return table;
}

std::vector<Position> grid() {
  std::vector<Position> out;
  for (int b = 0; b < sizes_b; ++b) {
    for (int h = 0; h < sizes_h; h += 3) {
      for (int q = 0; q < sizes_s; q += 5) {
        for (int k = 0; k < sizes_s; ++k) out.push_back({b, h, q, k});
      }
    }
  }
  return out;
}

TEST(Formulas, EachHasAMeaningAndEachMeaningAFormula) {
  std::set<std::string> named;
  for (const Example& example : read_examples()) {
    EXPECT_TRUE(meanings().contains(example.name)) << example.name;
    EXPECT_TRUE(named.insert(example.name).second) << example.name << " stands twice";
  }
  EXPECT_EQ(named.size(), meanings().size());
}

TEST(Formulas, MeanWhatTheySay) {
  for (const Example& example : read_examples()) {
    SCOPED_TRACE(example.name);
    const auto& [mod, mask] = meanings().at(example.name);
    const CapturedData captured(example.program);
    const Expr score = example.program.mod() ? example.program.mod() : parse_formula("score", {});
    const Expr keep = example.program.mask() ? example.program.mask() : parse_formula("true", {});
    const Expr roots[] = {score, keep};
    Evaluator<float> evaluate(roots);
    int wrong = 0;
    for (const Position& p : grid()) {
      const float s = 7 * std::sin(static_cast<float>(p.q * 31 + p.k * 17 + p.h));
      evaluate(captured.point(p, s));
      const double expected = mod(s, p, captured), got = evaluate.value(0).f;
      const bool near = std::abs(got - expected) <= 1e-5 * (1 + std::abs(expected));
      const bool same = evaluate.value(1).b == mask(p, captured);
      if ((!near || !same) && ++wrong < 5) {
        ADD_FAILURE() << "b=" << p.b << " h=" << p.h << " q=" << p.q << " k=" << p.k << ": " << got
                      << ", expected " << expected << "; mask " << evaluate.value(1).b;
      }
    }
    EXPECT_EQ(wrong, 0);
  }
}

TEST(Formulas, T5BucketsAreThoseOfThePaper) {
  const std::map<int, int> known{{0, 0},    {-1, 1},   {-7, 7},   {-8, 8},    {-11, 8},   {-12, 9},
                                 {-16, 10}, {-32, 12}, {-64, 14}, {-128, 15}, {-255, 15}, {1, 17},
                                 {7, 23},   {8, 24},   {64, 30},  {200, 31}};
  for (const auto& [relative, bucket] : known) EXPECT_EQ(t5_bucket(relative), bucket) << relative;
}

TEST(Formulas, HaveADerivativeByEveryFloatInput) {
  for (const Example& example : read_examples()) {
    SCOPED_TRACE(example.name);
    if (!example.program.mod()) continue;
    const Gradients gradients = differentiate(example.program.mod());
    std::set<std::uint32_t> loads, scalars;
    for (const LoadGradient& one : gradients.loads) loads.insert(one.load->slot());
    for (const ScalarGradient& one : gradients.scalars) scalars.insert(one.slot);
    EXPECT_EQ(loads.size(), example.program.tensors().size());
    EXPECT_EQ(scalars.size(), example.program.scalars().size());
    const CapturedData captured(example.program);
    const Expr roots[] = {example.program.mod(), gradients.score};
    Evaluator<double> evaluate(roots);
    for (const Position& p : {Position{0, 0, 9, 200}, Position{1, 3, 200, 9}, {1, 7, 50, 50}}) {
      const double score = 1.5, step = 1e-4;
      evaluate(captured.point(p, score + step));
      const double above = evaluate.value(0).f;
      evaluate(captured.point(p, score - step));
      const double slope = (above - evaluate.value(0).f) / (2 * step);
      evaluate(captured.point(p, score));
      EXPECT_NEAR(evaluate.value(1).f, slope, 1e-6 * (1 + std::abs(slope)));
    }
  }
}

// What a mask is over a tile, by looking at every cell.
TileClass class_by_looking(Evaluator<float>& keep, const CapturedData& captured, const Box& tile) {
  bool some = false, all = true;
  for (auto q = tile.q.lo; q <= tile.q.hi; ++q) {
    for (auto k = tile.k.lo; k <= tile.k.hi; ++k) {
      const Position p{static_cast<int>(tile.b.lo), static_cast<int>(tile.h.lo),
                       static_cast<int>(q), static_cast<int>(k)};
      keep(captured.point(p, 0.0f));
      some = some || keep.value().b;
      all = all && keep.value().b;
    }
  }
  return all ? TileClass::Full : some ? TileClass::Mixed : TileClass::Empty;
}

TEST(Formulas, TileClassesAreSound) {
  for (const Example& example : read_examples()) {
    SCOPED_TRACE(example.name);
    if (!example.program.mask()) continue;
    const CapturedData captured(example.program);
    Evaluator<float> keep(example.program.mask());
    const Ranges ranges(example.program.mask());
    Ranges::Scratch scratch;
    std::vector<Range> scalars;
    for (const ScalarDecl& scalar : example.program.scalars()) {
      scalars.push_back({IntInterval::of(static_cast<std::int64_t>(scalar.value.value_or(0))),
                         RealInterval::of(static_cast<float>(scalar.value.value_or(0))),
                         {}});
    }
    int decided = 0;
    for (std::int64_t q = 0; q < sizes_s; q += 32) {
      for (std::int64_t k = 0; k < sizes_s; k += 16) {
        Box tile;
        tile.b = tile.h = IntInterval::of(1);
        tile.q = {q, q + 31}, tile.k = {k, k + 15};
        tile.B = IntInterval::of(sizes_b), tile.H = tile.Hkv = IntInterval::of(sizes_h);
        tile.Sq = tile.Skv = IntInterval::of(sizes_s);
        tile.scalars = scalars;
        const TileClass said = ranges.classify(tile, scratch);
        if (said == TileClass::Mixed) continue;
        ++decided;
        EXPECT_EQ(said, class_by_looking(keep, captured, tile)) << "q=" << q << " k=" << k;
      }
    }
    EXPECT_GT(decided, 40) << "of 128 tiles";  // a causal half at least
  }
}

}  // namespace
}  // namespace fovea::ir

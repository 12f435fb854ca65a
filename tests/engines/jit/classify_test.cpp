// Rendered classifiers, compiled by the host's compiler: the same class as ir/range gives for the
// same ranges of loads, and never wrong about a point of the tile.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "engines/jit/render.h"
#include "engines/jit/render_range.h"
#include "ir/build.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "tests/engines/jit/rendered_code.h"
#include "tests/engines/jit/summary_case.h"
#include "tests/ir/random_point.h"

namespace fovea::test {
namespace {

using namespace ir;

constexpr Sizes sizes{.B = 2, .H = 3, .Hkv = 1, .Sq = 301, .Skv = 700};
constexpr float infinity = std::numeric_limits<float>::infinity();

enum Tile { Empty, Mixed, Full };  // as device/formula.h has them

// A program with what it captures, as a call would bind it.
struct Case {
  Program program;
  jit::Rendered rendered;
  std::vector<std::vector<unsigned>> tables;
  std::vector<long long> words;
};

Case bind(Program program, const jit::RenderOptions& options, const RandomCaptured& captured) {
  Case out;
  Problem problem;
  problem.program = out.program = std::move(program);
  out.rendered = jit::render(problem, options);
  out.words = pack_words(out.rendered, out.program, captured.tensors(), captured.scalars(), false);
  for (const jit::Summary& summary : out.rendered.summaries) {
    const TensorView& tensor = captured.tensors()[summary.slot];
    out.tables.push_back(make_table(summary, tensor));
    EXPECT_EQ(out.tables.back().size() * 4, static_cast<std::size_t>(jit::summary_bytes(
                                                summary, captured.extents(summary.slot))));
    out.words[static_cast<std::size_t>(summary.address)] =
        reinterpret_cast<long long>(out.tables.back().data());
  }
  return out;
}

// Some of a sequence's positions, most often a tile of them; now and then anything.
std::array<int, 2> side(Random& random, std::int32_t size) {
  if (random.chance(5)) {
    const std::int32_t a = random_int(random), b = random_int(random);
    return {std::min(a, b), std::max(a, b)};
  }
  constexpr std::int32_t lengths[] = {1, 16, 64, 64, 128, 1000};
  const std::int32_t length = random.pick(lengths);
  const std::int32_t first =
      static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(size)));
  return {first, std::min(first + length, size) - 1};
}

Point<float> point_in(Random& random, const Probe& probe, const RandomCaptured& captured) {
  Point<float> point = captured.point<float>(random);
  const auto inside = [&](int i) {
    const std::int64_t first = probe.box[2 * i], count = probe.box[2 * i + 1] - first + 1;
    return static_cast<std::int32_t>(first + static_cast<std::int64_t>(random.bits()) % count);
  };
  point.b = probe.b, point.h = inside(0), point.q = inside(1), point.k = inside(2);
  return point;
}

Box box_of(const Probe& probe, const RandomCaptured& captured) {
  Box box = captured.box();
  box.b = IntInterval::of(probe.b);
  box.h = {probe.box[0], probe.box[1]};
  box.q = {probe.box[2], probe.box[3]};
  box.k = {probe.box[4], probe.box[5]};
  return box;
}

struct Counts {
  long empty = 0, full = 0, mixed = 0;
};

void check(const RenderedCode& code, std::size_t number, const Case& one,
           const RandomCaptured& captured, Random& random, Counts& counts) {
  const jit::Classifier classifier(one.program);
  const Ranges formulas(classifier.formulas());
  const std::vector<Expr> roots{one.program.mask() ? one.program.mask() : constant(true),
                                one.program.mod() ? one.program.mod() : leaf(Op::Score)};
  Evaluator<float> eval(roots);
  const std::vector<Range> scalars = captured.scalar_ranges();
  for (int i = 0; i < 40; ++i) {
    Probe probe = probe_at(captured.point<float>(random), one.words);
    probe.b = random.between(0, sizes.B - 1);
    const int h = random.between(0, sizes.H - 1);
    const auto q = side(random, sizes.Sq), k = side(random, sizes.Skv);
    const int parts[] = {h, random.chance(80) ? h : sizes.H - 1, q[0], q[1], k[0], k[1]};
    std::copy(std::begin(parts), std::end(parts), probe.box);
    Box box = box_of(probe, captured);
    box.scalars = scalars;
    const std::vector<Range> loads = ranges_by_blocks(formulas, box, captured.tensors());
    box.loads = loads;
    Ranges::Scratch scratch;
    formulas.bound(box, scratch);
    const unsigned wanted = formulas.range(scratch, 0).b.never()    ? Empty
                            : formulas.range(scratch, 1).b.always() ? Full
                                                                    : Mixed;
    const unsigned got = code.ask(number, probe).tile;
    ++(got == Empty ? counts.empty : got == Full ? counts.full : counts.mixed);
    ASSERT_EQ(got, wanted) << "h " << h << " q " << q[0] << ".." << q[1] << " k " << k[0] << ".."
                           << k[1] << '\n'
                           << print(roots[0], one.program.declarations()) << '\n'
                           << one.rendered.text;
    for (int j = 0; got != Mixed && j < 20; ++j) {
      eval(point_in(random, probe, captured));
      const bool kept = eval.value(0).b;
      ASSERT_TRUE(got == Full ? kept : !kept || eval.value(1).f == -infinity)
          << print(roots[0], one.program.declarations());
    }
  }
}

Program random_masked(Random& random) {
  const auto condition = [&] {
    return build(draw(random, {.type = Type::Bool, .size = random.below(16), .score = false}));
  };
  Expr mod, mask;
  if (random.chance(85)) mask = condition();
  if (!mask || random.chance(20)) {
    mod = select(condition(), leaf(Op::Score), constant(-infinity));
    if (random.chance(50)) mod = mod + build(draw(random, {.size = 4, .score = random.chance(50)}));
  }
  return Program::with_slots(random_declarations(), mod, mask, {});
}

void check_all(std::span<const Program> programs, Values kind, std::uint64_t seed) {
  Random drawing(seed);
  const RandomCaptured captured(drawing, kind, sizes);
  RenderedCode code;
  std::vector<Case> all;
  for (const Program& program : programs) {
    const jit::RenderOptions options{.gradient = true};
    all.push_back(bind(program, options, captured));
    code.add(all.back().rendered, options);
  }
  ASSERT_EQ(code.build(), "");
  Counts counts;
  for (std::size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(seed_text(seed, i));
    Random random(seed, i);
    check(code, i, all[i], captured, random, counts);
    if (testing::Test::HasFatalFailure()) return;
  }
  std::printf("%ld empty, %ld full, %ld mixed\n", counts.empty, counts.full, counts.mixed);
  EXPECT_GT(counts.empty, 50);
  EXPECT_GT(counts.full, 50);
}

TEST(Classify, RandomMasksAsOnTheHost) {
  const std::uint64_t seed = test_seed();
  for (const Values kind : {Values::Any, Values::Tame}) {
    std::vector<Program> programs;
    for (std::uint64_t i = 0; i < cases(120); ++i) {
      Random random(seed, i);
      programs.push_back(random_masked(random));
    }
    check_all(programs, kind, seed);
    if (HasFatalFailure()) return;
  }
}

// What people write, with the names of random_declarations().
constexpr const char* usual_masks[] = {
    "q >= k",
    "q + (Skv - Sq) >= k",
    "q >= k && q - k < 64",
    "k < n1 * 40 || q >= k",
    "i0[b, q] == i0[b, k]",
    "i0[b, q] == i0[b, k] && q >= k",
    "i1[q] <= i1[k]",
    "k < i0[b, 0] * 100",
    "k % 128 < 64",
    "k % 64 == q % 64",
    "q // 64 == k // 64",
    "abs(q // 20 - k // 20) <= 2 && abs(q % 20 - k % 20) <= 2",
    "b0[b, h] || q == k",
    "f1[q, k] > 0",
    "f3[b, h, q] > 1 && k < q",
    "f32(q - k) * s1 < 10",
    "sqrt(f32(q)) > 4 * tanh(f32(k) / 100)",
    "i0[b, i1[k]] > 2",
    "h < 2",
    "(q ^ k) < 64",
};

TEST(Classify, UsualMasksAsOnTheHost) {
  std::vector<Program> programs;
  for (const char* text : usual_masks) {
    programs.push_back(Program::with_slots(random_declarations(), {},
                                           parse_formula(text, random_declarations()), {}));
  }
  check_all(programs, Values::Tame, test_seed());
}

}  // namespace
}  // namespace fovea::test

// What ir/build makes of a formula has the value of the formula as written: constant folding and
// every identity, at every kind of input, in float and in double.
#include "ir/build.h"

#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <set>
#include <thread>

#include "base/error.h"
#include "ir/arith.h"
#include "ir/diff.h"
#include "ir/language.h"
#include "ir/print.h"
#include "ir/program.h"
#include "ir/simplify.h"
#include "ir/topology.h"
#include "tests/ir/random_point.h"
#include "tests/ir/random_program.h"

namespace fovea::test {
namespace {

using namespace ir;

template <class Real>
Cell<Real> leaf_cell(const RawNode& node, const Point<Real>& p) {
  switch (node.op) {
    case Op::Score: return Cell<Real>::real(p.score);
    case Op::Grad: return Cell<Real>::real(p.grad);
    case Op::ScalarF: return Cell<Real>::real(static_cast<Real>(p.scalars[node.payload].f));
    case Op::ScalarI: return Cell<Real>::integer(p.scalars[node.payload].i);
    case Op::IndexB: return Cell<Real>::integer(p.b);
    case Op::IndexH: return Cell<Real>::integer(p.h);
    case Op::IndexQ: return Cell<Real>::integer(p.q);
    case Op::IndexK: return Cell<Real>::integer(p.k);
    case Op::SizeB: return Cell<Real>::integer(p.B);
    case Op::SizeH: return Cell<Real>::integer(p.H);
    case Op::SizeHkv: return Cell<Real>::integer(p.Hkv);
    case Op::SizeSq: return Cell<Real>::integer(p.Sq);
    case Op::SizeSkv: return Cell<Real>::integer(p.Skv);
    case Op::ConstF: return Cell<Real>::real(static_cast<Real>(std::bit_cast<float>(node.payload)));
    case Op::ConstI: return Cell<Real>::integer(std::bit_cast<std::int32_t>(node.payload));
    case Op::ConstB: return Cell<Real>::boolean(node.payload != 0);
    default: ADD_FAILURE() << "not a leaf: " << info(node.op).name; return {};
  }
}

// The graph as it is, one ir::apply after the other. `folded` are its expressions: where the
// builder has folded an f32 to a constant, double goes on with that f32 (float is checked to be
// what folding gave).
template <class Real>
std::vector<Cell<Real>> evaluate_raw(const RawGraph& graph, const std::vector<Expr>& folded,
                                     const Point<Real>& p) {
  std::vector<Cell<Real>> values;
  for (std::size_t at = 0; at < graph.size(); ++at) {
    const RawNode& node = graph[at];
    const Form form = info(node.op).form;
    if (form == Form::Load) {
      std::vector<std::int32_t> index;
      for (const std::uint32_t arg : node.args) index.push_back(values[arg].i);
      values.push_back(read_element<Real>(p.tensors[node.payload], index));
    } else if (node.args.empty()) {
      values.push_back(leaf_cell(node, p));
    } else {
      std::vector<Cell<Real>> args;
      for (const std::uint32_t arg : node.args) args.push_back(values[arg]);
      values.push_back(apply<Real>(node.op, args.data()));
    }
    const bool constant = std::is_same_v<Real, double> && folded[at]->op() == Op::ConstF;
    if (constant) values.back() = Cell<Real>::real(static_cast<Real>(folded[at]->float_value()));
  }
  return values;
}

template <class Real>
void expect_value_kept(const RawGraph& graph, const std::vector<Expr>& built,
                       Evaluator<Real>& evaluator, const Point<Real>& point) {
  const Cell<Real> wanted = evaluate_raw(graph, built, point).back();
  evaluator(point);
  const Type type = built.back()->type();
  ASSERT_TRUE(same_value(type, evaluator.value(), wanted))
      << print(built.back(), random_declarations()) << "\nat " << point_text(point) << "\ngives "
      << value_text(type, evaluator.value()) << ", as written " << value_text(type, wanted);
}

TEST(Build, KeepsTheValueOfRandomGraphs) {
  const std::uint64_t seed = test_seed();
  constexpr Type types[] = {Type::F32, Type::I32, Type::Bool};
  for (std::uint64_t i = 0; i < cases(60000); ++i) {
    SCOPED_TRACE(seed_text(seed, i));
    Random random(seed, i);
    const RawGraph graph =
        draw(random, {.type = random.pick(types), .size = 2 + random.below(24), .grad = true});
    const std::vector<Expr> built = build_all(graph);
    Evaluator<float> floats(built.back());
    Evaluator<double> doubles(built.back());
    for (int j = 0; j < 3; ++j) {
      const RandomCaptured captured(random, Values::Any);
      ASSERT_NO_FATAL_FAILURE(
          expect_value_kept(graph, built, floats, captured.point<float>(random)));
      ASSERT_NO_FATAL_FAILURE(
          expect_value_kept(graph, built, doubles, captured.point<double>(random)));
    }
  }
}

// Small graphs meet identities more often, and special values where they could break.
TEST(Build, KeepsTheValueOfEveryPairOfOperations) {
  const std::uint64_t seed = test_seed();
  std::uint64_t number = 0;
  for (const OpInfo& outer : all_ops) {
    if (outer.arity() == 0) continue;
    for (std::uint64_t round = 0; round < cases(400); ++round, ++number) {
      SCOPED_TRACE(std::string(outer.name) + ", " + seed_text(seed, number));
      Random random(seed, number);
      RawGraph graph;
      std::vector<std::uint32_t> args;
      for (std::size_t a = 0; a < outer.arity(); ++a) {
        const bool again = a > 0 && outer.argument(a) == outer.argument(a - 1) && random.chance(10);
        if (again) {
          args.push_back(args.back());
          continue;
        }
        const auto first = static_cast<std::uint32_t>(graph.size());
        for (RawNode& node : draw(random, {.type = outer.argument(a), .size = random.below(3)})) {
          for (std::uint32_t& arg : node.args) arg += first;
          graph.push_back(node);
        }
        args.push_back(static_cast<std::uint32_t>(graph.size() - 1));
      }
      graph.push_back({outer.op, 0, args});
      const std::vector<Expr> built = build_all(graph);
      Evaluator<float> floats(built.back());
      for (int j = 0; j < 12; ++j) {
        const RandomCaptured captured(random, Values::Any);
        ASSERT_NO_FATAL_FAILURE(
            expect_value_kept(graph, built, floats, captured.point<float>(random)));
      }
    }
  }
}

TEST(Build, IsIdempotent) {
  const std::uint64_t seed = test_seed();
  constexpr Type types[] = {Type::F32, Type::I32, Type::Bool};
  for (std::uint64_t i = 0; i < cases(30000); ++i) {
    Random random(seed, i);
    const Expr expr = build(
        draw(random, {.type = random.pick(types), .size = 2 + random.below(30), .grad = true}));
    const Expr again = rebuild(expr, [](const Node& node, std::span<const Expr> args) {
      switch (info(node.op()).form) {
        case Form::Load: return load(node.type(), node.slot(), args);
        case Form::Scalar: return scalar(node.type(), node.slot());
        default: return make(node.op(), args);
      }
    });
    ASSERT_EQ(expr.get(), again.get()) << seed_text(seed, i) << "\n"
                                       << print(expr, random_declarations()) << "\nbecomes "
                                       << print(again, random_declarations());
  }
}

TEST(Build, OrdersOperandsThatCommute) {
  const std::uint64_t seed = test_seed();
  for (std::uint64_t i = 0; i < cases(20000); ++i) {
    Random random(seed, i);
    const OpInfo& row = all_ops[random.below(op_count)];
    if (!row.commutes()) continue;
    const Expr x = build(draw(random, {.type = row.argument(0), .size = random.below(8)}));
    const Expr y = build(draw(random, {.type = row.argument(0), .size = random.below(8)}));
    ASSERT_EQ(make(row.op, {x, y}), make(row.op, {y, x}))
        << seed_text(seed, i) << "\n"
        << row.name << " of " << print(x, random_declarations()) << "  and  "
        << print(y, random_declarations());
  }
}

TEST(Build, ChecksOperands) {
  const Expr q = leaf(Op::IndexQ), score = leaf(Op::Score);
  EXPECT_THROW(make(Op::AddF, {q, score}), InternalError);
  EXPECT_THROW(make(Op::AddF, {score}), InternalError);
  EXPECT_THROW(make(Op::Score, {}), InternalError);
  EXPECT_THROW(leaf(Op::AddF), InternalError);
  EXPECT_THROW(load(Type::F32, 0, std::vector{score}), InternalError);
}

TEST(Build, MakesNaNOne) {
  EXPECT_EQ(constant(std::bit_cast<float>(0xffc00001u)), constant(std::nanf("")));
  EXPECT_NE(constant(0.0f), constant(-0.0f));
}

// The text forms reach the same operations as make(): i32 turns into f32 if it meets one.
TEST(Build, AppliesTexts) {
  const Expr q = leaf(Op::IndexQ), score = leaf(Op::Score);
  EXPECT_EQ(apply_text("+", Form::Infix, {q, score}), make(Op::AddF, {to_f32(q), score}));
  EXPECT_EQ(apply_text("+", Form::Infix, {q, q}), make(Op::AddI, {q, q}));
  EXPECT_EQ(apply_text("/", Form::Infix, {q, q}), make(Op::DivF, {to_f32(q), to_f32(q)}));
  EXPECT_EQ(apply_text("f32", Form::Call, {score}), score);
  EXPECT_THROW(apply_text("&&", Form::Infix, {q, q}), InvalidArgument);
  EXPECT_THROW(apply_text("%", Form::Infix, {score, q}), InvalidArgument);
}

// Expressions are one object per structure, from every thread, and none is left behind.

TEST(Intern, TheSameFormulaIsTheSameObject) {
  const std::uint64_t seed = test_seed();
  for (std::uint64_t i = 0; i < cases(5000); ++i) {
    Random one(seed, i), two(seed, i);
    const Expr first = build(draw(one, {.size = 30}));
    const Expr second = build(draw(two, {.size = 30}));
    ASSERT_EQ(first.get(), second.get()) << seed_text(seed, i);
  }
}

TEST(Intern, DifferentFormulasAreDifferentObjectsWithDifferentHashes) {
  const std::uint64_t seed = test_seed();
  std::set<std::string> texts;
  std::set<std::uint64_t> hashes;
  std::vector<Expr> kept;
  std::set<const Node*> nodes;
  for (std::uint64_t i = 0; i < cases(20000); ++i) {
    Random random(seed, i);
    kept.push_back(build(draw(random, {.size = random.below(20)})));
    texts.insert(print(kept.back(), random_declarations()));
    hashes.insert(kept.back()->hash());
    nodes.insert(kept.back().get());
  }
  EXPECT_EQ(texts.size(), nodes.size()) << "seed " << seed;
  EXPECT_EQ(hashes.size(), nodes.size()) << "seed " << seed;
}

TEST(Intern, LeavesNothingBehind) {
  const std::uint64_t seed = test_seed();
  random_declarations();
  const std::size_t before = live_nodes();
  for (std::uint64_t i = 0; i < cases(500); ++i) {
    Random random(seed, i);
    const Program program = random_program(random, 40);
    if (program.mod()) simplify(differentiate(program.mod()).score);
    ASSERT_TRUE(parse_program(print(program)) == program);
    ASSERT_GT(live_nodes(), before) << seed_text(seed, i);
  }
  EXPECT_EQ(live_nodes(), before) << "seed " << seed;
}

TEST(Intern, LongChainsAreCollectedWithoutRecursion) {
  const std::size_t before = live_nodes();
  {
    Expr chain = leaf(Op::Score);
    for (int i = 0; i < 1000000; ++i) chain = make(Op::Tanh, {chain});
    EXPECT_EQ(chain->depth(), 1000001u);
  }
  EXPECT_EQ(live_nodes(), before);
}

// Threads build, share, compare and drop the same small set of formulas, so that nodes die in one
// thread while another looks them up. Meant for the thread sanitizer as well.
TEST(Intern, ManyThreads) {
  const std::uint64_t seed = test_seed();
  random_declarations();
  const std::size_t before = live_nodes();
  std::atomic<int> failures = 0;
  const auto work = [&](std::uint64_t thread) {
    Random choice(seed, 1000 + thread);
    std::vector<Expr> kept(16);
    for (int i = 0; i < 4000; ++i) {
      const std::uint64_t number = choice.below(40);
      Random one(seed, number), two(seed, number);
      const Expr first = build(draw(one, {.size = 12}));
      const Expr second = build(draw(two, {.size = 12}));
      if (first != second) ++failures;
      Expr& place = kept[choice.below(16)];
      place = choice.chance(50) ? first : Expr{};
      if (first->type() == Type::F32 && choice.chance(10)) place = differentiate(first).score;
    }
  };
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) threads.emplace_back(work, t);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0) << "seed " << seed;
  EXPECT_EQ(live_nodes(), before) << "seed " << seed;
}

}  // namespace
}  // namespace fovea::test

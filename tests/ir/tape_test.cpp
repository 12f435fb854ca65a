// Tapes compute what eval says, in the stages and registers that they promise to engines.
#include "ir/tape.h"

#include <gtest/gtest.h>

#include <iostream>
#include <map>

#include "ir/build.h"
#include "ir/diff.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/topology.h"
#include "tests/ir/random_point.h"
#include "tests/ir/tape_interpreter.h"

namespace fovea::test {
namespace {

using namespace ir;

struct Case {
  std::vector<Expr> roots;
  std::string text;
};

// Several formulas at once, as an engine lowers mod, mask and derivatives together.
Case random_case(Random& random) {
  constexpr Type types[] = {Type::F32, Type::Bool, Type::I32};
  Case out;
  for (std::uint32_t i = 1 + random.below(3); i > 0; --i) {
    const Draw wanted{.type = random.pick(types), .size = random.below(24), .grad = true};
    out.roots.push_back(build(draw(random, wanted)));
    const Expr& last = out.roots.back();
    if (last->type() == Type::F32 && random.chance(30)) {
      out.roots.push_back(differentiate(last, leaf(Op::Grad)).score);
    }
  }
  for (const Expr& root : out.roots) out.text += print(root, random_declarations()) + "\n";
  return out;
}

TileInputs random_tile(Random& random, const RandomCaptured& captured, const Sizes& sizes) {
  TileInputs tile;
  tile.rest = captured.point<float>(random);
  tile.rest.b = random.between(0, sizes.B - 1), tile.rest.h = random.between(0, sizes.H - 1);
  for (std::int32_t q = 0; q < sizes.Sq; ++q) tile.q.push_back(q);
  for (std::int32_t k = 0; k < sizes.Skv; ++k) tile.k.push_back(k);
  for (std::size_t i = 0; i < tile.q.size() * tile.k.size(); ++i) {
    tile.score.push_back(random.chance(50) ? random.normal() : random_float(random));
    tile.grad.push_back(random.normal());
  }
  return tile;
}

TEST(Tape, ComputesWhatEvalSays) {
  const std::uint64_t seed = test_seed();
  const Sizes sizes;
  long loads = 0, proven = 0;
  for (std::uint64_t i = 0; i < cases(8000); ++i) {
    Random random(seed, i);
    const Case one = random_case(random);
    const RandomCaptured captured(random, random.chance(50) ? Values::Tame : Values::Any, sizes);
    const TileInputs tile = random_tile(random, captured, sizes);
    TapeBounds bounds{captured.box(), [&](std::uint32_t slot) { return captured.extents(slot); }};
    bounds.box.b = {0, sizes.B - 1}, bounds.box.h = {0, sizes.H - 1};
    bounds.box.q = {0, sizes.Sq - 1}, bounds.box.k = {0, sizes.Skv - 1};
    const std::vector<Range> scalars = captured.scalar_ranges();
    bounds.box.scalars = scalars;
    const Tape tape = lower(one.roots, random.chance(80) ? &bounds : nullptr);
    const TapeInterpreter run(tape, tile);
    ASSERT_EQ(run.fault(), "") << seed_text(seed, i) << "\n" << one.text;
    ASSERT_FALSE(run.left_bounds()) << seed_text(seed, i) << "\n" << one.text;
    for (const TapeIndex& index : tape.indices) ++loads, proven += index.in_bounds;
    Evaluator<float> evaluator(one.roots);
    for (std::size_t q = 0; q < tile.q.size(); ++q) {
      for (std::size_t k = 0; k < tile.k.size(); ++k) {
        Point<float> point = tile.rest;
        point.q = tile.q[q], point.k = tile.k[k];
        point.score = tile.score[q * tile.k.size() + k],
        point.grad = tile.grad[q * tile.k.size() + k];
        evaluator(point);
        for (std::size_t r = 0; r < one.roots.size(); ++r) {
          const Type type = one.roots[r]->type();
          ASSERT_TRUE(same_value(type, run.output(r, q, k), evaluator.value(r)))
              << seed_text(seed, i) << "\n"
              << one.text << "root " << r << " at " << point_text(point) << " gives "
              << value_text(type, run.output(r, q, k)) << ", eval "
              << value_text(type, evaluator.value(r));
        }
      }
    }
  }
  std::cout << loads << " indices, " << proven << " proven in bounds\n";
  EXPECT_GT(proven, loads / 4);
}

// Everything that a decision is computed from is exact; what feeds no decision is not.
TEST(Tape, MarksWhatDecides) {
  const std::uint64_t seed = test_seed();
  for (std::uint64_t i = 0; i < cases(5000); ++i) {
    Random random(seed, i);
    const Case one = random_case(random);
    const Tape tape = lower(one.roots);
    // Which instruction wrote the value that each source reads.
    std::map<std::uint32_t, std::size_t> writer;
    std::vector<std::vector<std::size_t>> operands(tape.code.size());
    for (std::size_t at = 0; at < tape.code.size(); ++at) {
      const Instruction& code = tape.code[at];
      const bool load = info(code.op).form == Form::Load;
      for (std::uint32_t j = 0; j < (load ? code.indices : info(code.op).arity()); ++j) {
        operands[at].push_back(
            writer.at(load ? tape.indices[code.first_index + j].source : code.source[j]));
      }
      writer[code.target] = at;
    }
    // From the definition: the operands of what decides, of what is not f32 and of loads, and all
    // that is below them.
    std::vector<bool> needed(tape.code.size(), false);
    for (std::size_t at = tape.code.size(); at-- > 0;) {
      const Instruction& code = tape.code[at];
      const bool is_f32 = info(code.op).result() == Type::F32;
      if (!is_f32 || decides(code.op)) needed[at] = true;
      const bool passes = needed[at] || info(code.op).form == Form::Load;
      for (const std::size_t operand : operands[at]) needed[operand] = needed[operand] || passes;
    }
    for (std::size_t at = 0; at < tape.code.size(); ++at) {
      ASSERT_EQ(tape.code[at].exact, needed[at]) << seed_text(seed, i) << " instruction " << at
                                                 << " " << info(tape.code[at].op).name << "\n"
                                                 << one.text;
    }
  }
}

TEST(Tape, HoistsAndReusesRegisters) {
  const Expr mask = parse_formula("exp(f32(q)) * 2.0 < exp(f32(k)) + f32(h * 3)", {});
  const Tape tape = lower(std::span(&mask, 1));
  EXPECT_EQ(tape.of(Stage::Uniform).size(), 5u);  // h, 3, h * 3, f32, 2.0
  EXPECT_EQ(tape.of(Stage::Row).size(), 4u);      // q, f32, exp, * 2.0
  EXPECT_EQ(tape.of(Stage::Column).size(), 4u);   // k, f32, exp, + h * 3
  EXPECT_EQ(tape.of(Stage::Element).size(), 1u);
  std::string chain = "score";
  for (int i = 0; i < 100; ++i) chain = "tanh(" + chain + ")";
  const Expr deep = parse_formula(chain.substr(0, 200 * 5), {}, Role::Any);
  EXPECT_EQ(lower(std::span(&deep, 1)).registers.size(), 1u);  // in place
}

TEST(Tape, SharesBetweenRoots) {
  const Expr roots[] = {parse_formula("tanh(score) * 2.0", {}), parse_formula("tanh(score)", {}),
                        parse_formula("tanh(score)", {})};
  const Tape tape = lower(roots);
  EXPECT_EQ(tape.code.size(), 4u);
  EXPECT_EQ(tape.outputs[1], tape.outputs[2]);
}

TEST(Tape, ProvesIndicesOfKnownSizes) {
  Declarations declared;
  declare(declared, parse_tensor("t:f32[H,9]"));
  const Expr expr = parse_formula("t[h, clamp(k - q, -4, 4) + 4] + t[h, k - q]", declared);
  const std::int64_t extents[] = {4, 9};
  TapeBounds bounds{{}, [&](std::uint32_t) { return std::span(extents); }};
  bounds.box.h = {0, 3}, bounds.box.q = {0, 99}, bounds.box.k = {0, 99};
  const Tape tape = lower(std::span(&expr, 1), &bounds);
  std::vector<bool> proofs;
  for (const Instruction& code : tape.code) {
    for (std::uint32_t i = 0; i < code.indices; ++i) {
      proofs.push_back(tape.indices[code.first_index + i].in_bounds);
    }
  }
  EXPECT_EQ(std::count(proofs.begin(), proofs.end(), true), 3);
  EXPECT_EQ(std::count(proofs.begin(), proofs.end(), false), 1);
}

}  // namespace
}  // namespace fovea::test

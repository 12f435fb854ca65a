// Tapes compute what eval says, in the stages and registers that they promise to engines.
#include "ir/tape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <iostream>
#include <map>
#include <vector>

#include "ir/build.h"
#include "ir/diff.h"
#include "ir/eval.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/topology.h"
#include "tests/ir/random_point.h"

namespace fovea::test {
namespace {

using namespace ir;

// Runs a tape the way an engine does: Uniform instructions once, Row ones for every q, Column ones
// for every k, Element ones for every pair, each register a scalar, a vector or a tile by its
// stage. What a register holds after its last reader is poison, so that a register reused too early
// shows.
struct TileInputs {
  std::vector<std::int32_t> q, k;
  std::vector<float> score, grad;  // [q, k]
  ir::Point<float> rest;           // b, h, sizes, scalars, tensors
};

class TapeInterpreter {
 public:
  TapeInterpreter(const ir::Tape& tape, const TileInputs& inputs);

  // Output i at place (q, k) of the tile.
  const ir::Cell<float>& output(std::size_t i, std::size_t q, std::size_t k) const;
  // What went wrong: an instruction that reads what is not there (yet, or any more), a register in
  // the wrong stage. Empty if nothing.
  const std::string& fault() const { return fault_; }
  // Whether an index that the tape calls in bounds was not.
  bool left_bounds() const { return left_bounds_; }

 private:
  struct Register {
    std::vector<ir::Cell<float>> values;  // as many as its stage has places
    bool live = false;
  };

  void run_stage(ir::Stage stage);
  void run(const ir::Instruction& instruction, std::size_t q, std::size_t k);
  std::size_t place(ir::Stage stage, std::size_t q, std::size_t k) const;
  ir::Cell<float> read(std::uint32_t number, std::size_t q, std::size_t k);
  ir::Cell<float> leaf(const ir::Instruction& instruction, std::size_t q, std::size_t k) const;
  ir::Cell<float> load(const ir::Instruction& instruction, std::size_t q, std::size_t k);
  void find_last_reads();

  const ir::Tape& tape_;
  const TileInputs& inputs_;
  std::vector<Register> registers_;
  std::vector<std::vector<std::uint32_t>> dies_after_;  // by instruction
  std::string fault_;
  bool left_bounds_ = false;
};

// Registers that an instruction reads.
std::vector<std::uint32_t> sources(const Tape& tape, const Instruction& instruction) {
  std::vector<std::uint32_t> out;
  if (info(instruction.op).form == Form::Load) {
    for (std::uint32_t i = 0; i < instruction.indices; ++i) {
      out.push_back(tape.indices[instruction.first_index + i].source);
    }
  } else {
    for (std::size_t i = 0; i < info(instruction.op).arity(); ++i)
      out.push_back(instruction.source[i]);
  }
  return out;
}

TapeInterpreter::TapeInterpreter(const Tape& tape, const TileInputs& inputs)
    : tape_(tape), inputs_(inputs), registers_(tape.registers.size()) {
  const std::size_t rows = inputs.q.size(), columns = inputs.k.size();
  for (std::size_t i = 0; i < registers_.size(); ++i) {
    switch (tape.registers[i]) {
      case Stage::Uniform: registers_[i].values.resize(1); break;
      case Stage::Row: registers_[i].values.resize(rows); break;
      case Stage::Column: registers_[i].values.resize(columns); break;
      case Stage::Element: registers_[i].values.resize(rows * columns); break;
    }
  }
  find_last_reads();
  for (const Stage stage : {Stage::Uniform, Stage::Row, Stage::Column, Stage::Element}) {
    run_stage(stage);
  }
  for (const std::uint32_t output : tape.outputs) {
    if (!registers_[output].live) fault_ = "an output is not there at the end";
  }
}

// A value dies with the last instruction that reads it before its register is written again. Found
// from the code alone, so that the tape's own idea of liveness is not trusted.
void TapeInterpreter::find_last_reads() {
  dies_after_.resize(tape_.code.size());
  std::vector<std::uint32_t> last_read(registers_.size(), 0);
  std::vector<bool> read_since_write(registers_.size(), false);
  for (std::uint32_t i = 0; i < tape_.code.size(); ++i) {
    for (const std::uint32_t source : sources(tape_, tape_.code[i])) {
      last_read[source] = i;
      read_since_write[source] = true;
    }
    const std::uint32_t target = tape_.code[i].target;
    if (read_since_write[target] && last_read[target] != i)
      dies_after_[last_read[target]].push_back(target);
    read_since_write[target] = false;
  }
}

void TapeInterpreter::run_stage(Stage stage) {
  const bool rows = stage == Stage::Row || stage == Stage::Element;
  const bool columns = stage == Stage::Column || stage == Stage::Element;
  const auto first = tape_.stage[static_cast<std::size_t>(stage)];
  const auto end = tape_.stage[static_cast<std::size_t>(stage) + 1];
  for (std::uint32_t i = first; i < end; ++i) {
    const Instruction& instruction = tape_.code[i];
    if (instruction.stage != stage) fault_ = "an instruction stands in the wrong stage";
    if (tape_.registers[instruction.target] != stage)
      fault_ = "a register of another stage is written";
    for (std::size_t q = 0; q < (rows ? inputs_.q.size() : 1); ++q) {
      for (std::size_t k = 0; k < (columns ? inputs_.k.size() : 1); ++k) run(instruction, q, k);
    }
    registers_[instruction.target].live = true;
    for (const std::uint32_t dead : dies_after_[i]) {
      if (dead == instruction.target) continue;
      const Cell<float> poison{-7.77e33f, -7.77e33f, 0x7eadbeef, true};
      std::ranges::fill(registers_[dead].values, poison);
      registers_[dead].live = false;
    }
  }
}

std::size_t TapeInterpreter::place(Stage stage, std::size_t q, std::size_t k) const {
  switch (stage) {
    case Stage::Uniform: return 0;
    case Stage::Row: return q;
    case Stage::Column: return k;
    case Stage::Element: return q * inputs_.k.size() + k;
  }
  return 0;
}

void TapeInterpreter::run(const Instruction& instruction, std::size_t q, std::size_t k) {
  Cell<float> value;
  if (info(instruction.op).form == Form::Load) {
    value = load(instruction, q, k);
  } else if (info(instruction.op).arity() == 0) {
    value = leaf(instruction, q, k);
  } else {
    std::vector<Cell<float>> args;
    for (const std::uint32_t source : sources(tape_, instruction))
      args.push_back(read(source, q, k));
    value = apply<float>(instruction.op, args.data());
  }
  registers_[instruction.target].values[place(instruction.stage, q, k)] = value;
}

Cell<float> TapeInterpreter::read(std::uint32_t number, std::size_t q, std::size_t k) {
  if (!registers_[number].live)
    fault_ = "register " + std::to_string(number) + " is read but not live";
  return registers_[number].values[place(tape_.registers[number], q, k)];
}

Cell<float> TapeInterpreter::leaf(const Instruction& instruction, std::size_t q,
                                  std::size_t k) const {
  const Point<float>& p = inputs_.rest;
  using C = Cell<float>;
  const std::size_t at = q * inputs_.k.size() + k;
  switch (instruction.op) {
    case Op::Score: return C::real(inputs_.score[at]);
    case Op::Grad: return C::real(inputs_.grad[at]);
    case Op::ScalarF: return C::real(p.scalars[instruction.payload].f);
    case Op::ScalarI: return C::integer(p.scalars[instruction.payload].i);
    case Op::IndexB: return C::integer(p.b);
    case Op::IndexH: return C::integer(p.h);
    case Op::IndexQ: return C::integer(inputs_.q[q]);
    case Op::IndexK: return C::integer(inputs_.k[k]);
    case Op::SizeB: return C::integer(p.B);
    case Op::SizeH: return C::integer(p.H);
    case Op::SizeHkv: return C::integer(p.Hkv);
    case Op::SizeSq: return C::integer(p.Sq);
    case Op::SizeSkv: return C::integer(p.Skv);
    case Op::ConstF: return C::real(std::bit_cast<float>(instruction.payload));
    case Op::ConstI: return C::integer(std::bit_cast<std::int32_t>(instruction.payload));
    case Op::ConstB: return C::boolean(instruction.payload != 0);
    default: return {};
  }
}

Cell<float> TapeInterpreter::load(const Instruction& instruction, std::size_t q, std::size_t k) {
  const TensorView& tensor = inputs_.rest.tensors[instruction.payload];
  std::vector<std::int32_t> index;
  for (std::uint32_t i = 0; i < instruction.indices; ++i) {
    const TapeIndex& at = tape_.indices[instruction.first_index + i];
    index.push_back(read(at.source, q, k).i);
    const bool inside = index.back() >= 0 && index.back() < tensor.extent[i];
    if (at.in_bounds && !inside) left_bounds_ = true;
  }
  return read_element<float>(tensor, index);  // clamps; a no-op if proven
}

const Cell<float>& TapeInterpreter::output(std::size_t i, std::size_t q, std::size_t k) const {
  const std::uint32_t number = tape_.outputs[i];
  return registers_[number].values[place(tape_.registers[number], q, k)];
}

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

#include "tests/ir/tape_interpreter.h"

#include <algorithm>
#include <bit>

namespace fovea::test {

using namespace ir;

namespace {

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

}  // namespace

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

}  // namespace fovea::test

#include "engines/cpu/strips/strip.h"

#include <algorithm>
#include <bit>
#include <new>

#include "engines/cpu/strips/strip_code.h"
#include "engines/cpu/strips/strip_state.h"
#include "ir/arith.h"

namespace fovea::cpu {
namespace {

using ir::Cell;
using ir::Op;
using ir::Stage;
using ir::Type;

Cell<float> to_cell(Type type, std::uint32_t bits) {
  switch (type) {
    case Type::F32: return Cell<float>::real(std::bit_cast<float>(bits));
    case Type::I32: return Cell<float>::integer(std::bit_cast<std::int32_t>(bits));
    case Type::Bool: return Cell<float>::boolean(bits != 0);
  }
  return {};
}

std::uint32_t to_bits(Type type, const Cell<float>& value) {
  switch (type) {
    case Type::F32: return std::bit_cast<std::uint32_t>(value.f);
    case Type::I32: return std::bit_cast<std::uint32_t>(value.i);
    case Type::Bool: return value.b ? ~std::uint32_t{0} : 0;
  }
  return 0;
}

std::uint32_t bits_of(std::int32_t value) { return std::bit_cast<std::uint32_t>(value); }

// A value that is neither computed nor loaded.
std::uint32_t leaf_bits(const ScalarStep& step, const LeafValues& leaves) {
  switch (step.op) {
    case Op::ScalarF: return std::bit_cast<std::uint32_t>(leaves.scalars[step.payload].f);
    case Op::ScalarI: return bits_of(leaves.scalars[step.payload].i);
    case Op::IndexB: return bits_of(leaves.b);
    case Op::IndexH: return bits_of(leaves.h);
    case Op::SizeB: return bits_of(leaves.B);
    case Op::SizeH: return bits_of(leaves.H);
    case Op::SizeHkv: return bits_of(leaves.Hkv);
    case Op::SizeSq: return bits_of(leaves.Sq);
    case Op::SizeSkv: return bits_of(leaves.Skv);
    case Op::ConstB: return step.payload != 0 ? ~std::uint32_t{0} : 0;
    default: return step.payload;  // the constants of 32 bits
  }
}

std::uint32_t load_bits(const ScalarStep& step, const StripState& state,
                        const std::uint32_t* registers) {
  std::array<std::int32_t, ir::limits::rank> index;
  for (std::uint32_t i = 0; i < step.indices; ++i) {
    const std::uint32_t source = state.code->scalar_indices[step.first_index + i];
    index[i] = std::bit_cast<std::int32_t>(registers[source]);
  }
  const ir::TensorView& tensor = state.leaves.tensors[step.payload];
  return to_bits(ir::info(step.op).result(),
                 ir::read_element<float>(tensor, {index.data(), step.indices}));
}

std::uint32_t scalar_bits(const ScalarStep& step, const StripState& state,
                          const std::uint32_t* registers) {
  const ir::OpInfo& row = ir::info(step.op);
  if (row.form == ir::Form::Load) return load_bits(step, state, registers);
  if (row.arity() == 0) return leaf_bits(step, state.leaves);
  std::array<Cell<float>, 3> args;
  for (std::size_t i = 0; i < std::min(row.arity(), args.size()); ++i) {
    args[i] = to_cell(row.argument(i), registers[step.source[i]]);
  }
  return to_bits(row.result(), ir::apply<float>(step.op, args.data()));
}

void call(const StripState& state, const VectorStep& step, const StorageBases& bases, int rows) {
  StripCall call;
  call.out = const_cast<void*>(state.find(step.out, bases).data);
  for (std::size_t i = 0; i < step.operands; ++i) {
    const StripValue value = state.find(step.in[i], bases);
    call.in[i] = value.data;
    call.step[i] = value.row_step;
  }
  call.rows = rows;
  call.mode = step.mode;
  step.kernel(call);
}

// The values of rows or columns: vectors of `count`, computed in lines as wide as a panel.
void run_lines(StripState& state, Stage stage, std::span<const VectorStep> steps,
               std::int32_t first, int count) {
  const StorageBases bases = state.lines(stage);
  const int lines = (count + state.panel_width() - 1) / state.panel_width();
  for (const VectorStep& step : steps) {
    switch (step.kind) {
      case VectorStep::Kind::Kernel: call(state, step, bases, lines); break;
      case VectorStep::Kind::Load: load_line(state, state.code->loads[step.load], count); break;
      case VectorStep::Kind::Positions: {
        auto* const out = const_cast<void*>(state.find(step.out, bases).data);
        state.code->kernels.strips->sequence(static_cast<std::int32_t*>(out), first, count);
        break;
      }
    }
  }
}

template <class T>
std::size_t bytes_of(const std::vector<T>& list) {
  return list.capacity() * sizeof(T);
}

}  // namespace

StripProgram::StripProgram(const Roots& roots, const KernelTable& kernels)
    : code_(std::make_shared<const StripCode>(compile_strips(roots, kernels))) {}

std::size_t StripProgram::memory_bytes() const {
  const StripCode& c = *code_;
  return sizeof(StripProgram) + sizeof(StripCode) + bytes_of(c.uniform) + bytes_of(c.row) +
         bytes_of(c.column) + bytes_of(c.phase[0]) + bytes_of(c.phase[1]) + bytes_of(c.loads) +
         bytes_of(c.indices) + bytes_of(c.scalar_indices) + bytes_of(c.roots);
}

std::size_t StripProgram::state_bytes(int rows, int columns) const {
  return layout_of(*code_, rows, columns).total;
}

StripRun::StripRun(const StripProgram& program, void* state, int rows, int columns)
    : state_(new(state) StripState) {
  state_->code = &program.code();
  state_->layout = layout_of(program.code(), rows, columns);
  state_->bases = state_->strip();
  for (std::uint32_t i = 0; i < state_->code->element_loads; ++i) new (&state_->view(i)) LoadView;
}

void StripRun::begin(const LeafValues& leaves) {
  state_->leaves = leaves;
  std::uint32_t* const registers = state_->uniform();
  for (const ScalarStep& step : state_->code->uniform) {
    registers[step.target] = scalar_bits(step, *state_, registers);
  }
}

void StripRun::rows(std::int32_t q_first, int count) {
  run_lines(*state_, Stage::Row, state_->code->row, q_first, count);
  for (const StripLoad& load : state_->code->loads) {
    if (load.stage == Stage::Element) prepare_load(*state_, load, count);
  }
}

void StripRun::columns(std::int32_t k_first, int count) {
  state_->k_first = k_first;
  run_lines(*state_, Stage::Column, state_->code->column, k_first, count);
}

void StripRun::elements(int phase, const Strip& strip) {
  state_->move_to(strip);
  for (const VectorStep& step : state_->code->phase[static_cast<std::size_t>(phase)]) {
    if (step.kind == VectorStep::Kind::Load) {
      load_strip(*state_, state_->code->loads[step.load], strip);
    } else {
      call(*state_, step, state_->bases, strip.rows);
    }
  }
}

StripValue StripRun::value(std::size_t root) const {
  const StripOperand& operand = state_->code->roots[root];
  StripValue out = state_->find(operand, state_->bases);
  if (operand.storage == Storage::Uniform || operand.storage == Storage::Row) out.column_step = 0;
  return out;
}

void StripRun::keep_bits(std::size_t root, const Strip& strip, std::uint64_t* bits,
                         int words) const {
  const StripOperand& operand = state_->code->roots[root];
  const StripValue value = state_->find(operand, state_->bases);
  StripCall call;
  call.in[0] = value.data;
  call.step[0] = value.row_step;
  call.rows = strip.rows;
  const bool splat = operand.storage == Storage::Uniform || operand.storage == Storage::Row;
  state_->code->kernels.strips->bits(call, splat, strip.columns, bits + strip.column / 64, words,
                                     strip.column % 64);
}

}  // namespace fovea::cpu

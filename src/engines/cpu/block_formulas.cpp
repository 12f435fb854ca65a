#include "engines/cpu/block_formulas.h"

#include <algorithm>
#include <bit>

#include "attention/philox.h"

namespace fovea::cpu {
namespace {

// The middle of a tile, from which positions are counted: see Prepared::relative.
constexpr std::int32_t middle_of(std::int32_t k_first) { return k_first + tile_columns / 2; }

}  // namespace

LeafValues BlockProgram::leaves(int head) const {
  LeafValues leaves = call_.leaves(block_.sequence, block_.first_head + head);
  if (!scalars_.empty()) leaves.scalars = scalars_;
  return leaves;
}

void BlockProgram::tile(std::int32_t k_first, int columns) {
  k_first_ = k_first;
  columns_ = columns;
  if (!scalars_.empty()) scalars_.back().i = middle_of(k_first);
  if (head_ < 0) return;
  if (!scalars_.empty()) run_.begin(leaves(head_));
  run_.columns(k_first_, columns_);
}

void BlockProgram::select_head(int head) {
  if (head == head_) return;
  head_ = head;
  run_.begin(leaves(head));
  run_.rows(static_cast<std::int32_t>(block_.position + block_.sequence.q_offset), block_.rows);
  run_.columns(k_first_, columns_);
}

void KeepBits::keep_first(int rows, int columns) const {
  for (int r = 0; r < rows; ++r) {
    for (int w = 0; w < keep_words; ++w) {
      const int left = std::clamp(columns - 64 * w, 0, 64);
      row(r)[w] = left == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << left) - 1;
    }
  }
}

MatrixPart KeepBits::trim(int first, int last) const {
  std::uint64_t any[keep_words] = {};
  for (int r = first; r < last; ++r) {
    for (int w = 0; w < keep_words; ++w) any[w] |= row(r)[w];
  }
  MatrixPart part{first, last, 0, 0};
  for (int w = keep_words; w-- > 0;) {
    if (any[w] == 0) continue;
    part.column_first = 64 * w;
    if (part.column_last == 0) part.column_last = 64 * w + 64 - std::countl_zero(any[w]);
  }
  return part;
}

RowShifts::RowShifts(Arena& arena, const Prepared& plan)
    : shift(arena.take<float>(block_rows)),
      slope(arena.take<float>(block_rows)),
      of_tile(arena.take<double>(block_rows)),
      state(take_bytes(arena, plan.row_state_bytes())),
      scalars(arena.take<ir::ScalarValue>(
          plan.relative ? static_cast<std::int64_t>(plan.baked.program.scalars().size()) + 1 : 0)) {
}

namespace {

// Finds one value for each row of a block, by a program that does not depend on k.
void find_row_values(BlockProgram& program, int rows, std::span<float> out) {
  program.tile(0, 1);
  program.for_strips({0, rows, 0, 1}, [&](const StripRun::Strip& strip, int base) {
    program.run().elements(0, strip);
    const StripValue value = program.run().value(0);
    for (int r = 0; r < strip.rows; ++r) {
      out[static_cast<std::size_t>(base + strip.row + r)] = value.f32()[r * value.row_step];
    }
  });
}

// If positions are so large that k - q may wrap, the formula computes it itself, and lines are not
// split off.
bool cannot_wrap(const Sequence& sequence) {
  constexpr std::int64_t most = std::int64_t{1} << 30;
  const auto small = [](std::int64_t first, std::int64_t length) {
    return first > -most && first + length + tile_columns < most;
  };
  return small(sequence.q_offset, sequence.q_length) && small(sequence.k_offset, sequence.k_length);
}

}  // namespace

bool RowShifts::start(const Call& call, const QueryBlock& block) const {
  std::ranges::fill(shift, 0.0f);
  std::ranges::fill(of_tile, 0.0);
  const auto find = [&](const std::optional<StripProgram>& program, std::span<float> out) {
    if (!program) return;
    BlockProgram values(*program, state.data(), call, block);
    find_row_values(values, block.all_rows(), out);
  };
  find(call.plan.shift, shift);
  if (!call.plan.relative || !cannot_wrap(block.sequence)) return false;
  find(call.plan.slope, slope);
  std::ranges::copy(call.scalars, scalars.begin());
  scalars.back() = {};
  return true;
}

void RowShifts::find_of_tile(const Call& call, const QueryBlock& block,
                             std::int32_t k_first) const {
  const std::int64_t k = std::int64_t{middle_of(k_first)} * call.plan.slope_k;
  for (int r = 0; r < block.all_rows(); ++r) {
    const std::int64_t q = block.position_of(r) + block.sequence.q_offset;
    const auto row = static_cast<std::size_t>(r);
    of_tile[row] = static_cast<double>(slope[row]) * static_cast<double>(k + q * call.plan.slope_q);
  }
}

FormulaMemory::FormulaMemory(Arena& arena, const Prepared& plan)
    : keep{arena.take<std::uint64_t>(block_rows, keep_words)},
      shifts(arena, plan),
      mask_state(
          take_bytes(arena, plan.mask ? plan.mask->state_bytes(block_rows, tile_columns) : 0)),
      mod_state(take_bytes(arena, plan.mod_state_bytes())) {}

BlockFormulas::BlockFormulas(const Call& call, const FormulaMemory& memory)
    : call_(call), memory_(memory), dropout_(value_of(call.bound.dropout)) {
  drawn_.threshold = dropout_threshold(dropout_);
  drawn_.seed = value_of(call.bound.seed);
  drawn_.offset = static_cast<std::uint32_t>(value_of(call.bound.offset));
}

void BlockFormulas::start(const QueryBlock& block) {
  block_ = block;
  mask_.reset();
  mod_.reset();
  if (call_.plan.mask) {
    mask_.emplace(*call_.plan.mask, memory_.mask_state.data(), call_, block);
  }
  relative_ = memory_.shifts.start(call_, block);
  const auto& mod = relative_ ? call_.plan.relative : call_.plan.mod;
  if (!mod) return;
  mod_.emplace(*mod, memory_.mod_state.data(), call_, block,
               relative_ ? memory_.shifts.scalars : std::span<ir::ScalarValue>{});
}

bool BlockFormulas::start_tile(const Tile& tile, int columns) {
  const std::int64_t first = std::int64_t{tile.number} * tile_columns;
  k_first_ = static_cast<std::int32_t>(first + block_.sequence.k_offset);
  if (mod_) mod_->tile(k_first_, columns);
  if (relative_) memory_.shifts.find_of_tile(call_, block_, k_first_);
  const KeepBits& keep = memory_.keep;
  const int rows = block_.all_rows();
  if (tile.full) {
    if (columns % call_.kernels.lanes == 0) return false;
    keep.keep_first(rows, columns);
    return true;
  }
  std::ranges::fill(keep.words.first(static_cast<std::size_t>(rows * keep_words)), 0);
  mask_->tile(k_first_, columns);
  mask_->for_strips({0, rows, 0, columns}, [&](const StripRun::Strip& strip, int base) {
    mask_->run().elements(0, strip);
    mask_->run().keep_bits(0, strip, keep.row(base + strip.row), keep_words);
  });
  return true;
}

void BlockFormulas::draw(int row, int first, int columns, std::uint64_t* out) const {
  const auto word = [](std::int64_t x) { return static_cast<std::uint32_t>(x); };
  const LeafValues leaves = call_.leaves(block_.sequence, block_.head_of(row));
  DropoutRow drawn = drawn_;
  drawn.bh = word(leaves.b) * word(leaves.H) + word(leaves.h);
  drawn.q = word(block_.position_of(row) + block_.sequence.q_offset);
  drawn.k = word(std::int64_t{k_first_} + first);
  call_.kernels.dropout(drawn, columns, out);
}

}  // namespace fovea::cpu

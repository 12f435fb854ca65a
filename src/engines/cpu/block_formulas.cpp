#include "engines/cpu/block_formulas.h"

#include <algorithm>
#include <bit>

namespace fovea::cpu {

void BlockProgram::start(const Call& call, const Sequence& sequence, std::int64_t first_head,
                         const Block& block, std::span<ir::ScalarValue> scalars) {
  call_ = &call;
  sequence_ = sequence;
  first_head_ = first_head;
  block_ = block;
  scalars_ = scalars;
  head_ = -1;
}

LeafValues BlockProgram::leaves(int head) const {
  LeafValues leaves = call_->leaves(sequence_, first_head_ + head);
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
  run_.rows(static_cast<std::int32_t>(block_.position + sequence_.q_offset), block_.rows);
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

TilePart KeepBits::trim(int first, int last) const {
  std::uint64_t any[keep_words] = {};
  for (int r = first; r < last; ++r) {
    for (int w = 0; w < keep_words; ++w) any[w] |= row(r)[w];
  }
  TilePart part{first, last, 0, 0};
  for (int w = keep_words; w-- > 0;) {
    if (any[w] == 0) continue;
    part.column_first = 64 * w;
    if (part.column_last == 0) part.column_last = 64 * w + 64 - std::countl_zero(any[w]);
  }
  return part;
}

void find_kept(BlockProgram& mask, const Call& call, int rows, int columns, const KeepBits& keep) {
  std::ranges::fill(keep.words.first(static_cast<std::size_t>(rows * keep_words)), 0);
  mask.for_strips({0, rows, 0, columns}, call.kernels, [&](const StripRun::Strip& strip, int base) {
    mask.run().elements(0, strip);
    mask.run().keep_bits(0, strip, keep.row(base + strip.row), keep_words);
  });
}

RowShifts::RowShifts(Arena& arena, const Prepared& plan)
    : shift(arena.take<float>(block_rows)),
      slope(arena.take<float>(block_rows)),
      of_tile(arena.take<double>(block_rows)),
      state(arena.take<std::byte>(static_cast<std::int64_t>(plan.row_state_bytes()))),
      scalars(arena.take<ir::ScalarValue>(
          plan.relative ? static_cast<std::int64_t>(plan.baked.program.scalars().size()) + 1 : 0)) {
}

namespace {

// Finds one value for each row of a block, by a program that does not depend on k.
void find_row_values(BlockProgram& program, const Call& call, int rows, std::span<float> out) {
  program.tile(0, 1);
  program.for_strips({0, rows, 0, 1}, call.kernels, [&](const StripRun::Strip& strip, int base) {
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

bool RowShifts::start(const Call& call, const Sequence& sequence, std::int64_t first_head,
                      const Block& block) const {
  std::ranges::fill(shift, 0.0f);
  std::ranges::fill(of_tile, 0.0);
  const auto find = [&](const std::optional<StripProgram>& program, std::span<float> out) {
    if (!program) return;
    BlockProgram values(*program, state.data());
    values.start(call, sequence, first_head, block);
    find_row_values(values, call, block.all_rows(), out);
  };
  find(call.plan.shift, shift);
  const bool relative = call.plan.relative && cannot_wrap(sequence);
  if (!relative) return false;
  find(call.plan.slope, slope);
  std::ranges::copy(call.scalars, scalars.begin());
  scalars.back() = {};
  return true;
}

void RowShifts::find_of_tile(const Call& call, const Sequence& sequence, const Block& block,
                             std::int32_t k_first) const {
  const std::int64_t k = std::int64_t{middle_of(k_first)} * call.plan.slope_k;
  const std::int64_t q = block.position + sequence.q_offset;
  for (int r = 0; r < block.all_rows(); ++r) {
    const std::int64_t steps = k + (q + r % block.rows) * call.plan.slope_q;
    const auto row = static_cast<std::size_t>(r);
    of_tile[row] = static_cast<double>(slope[row]) * static_cast<double>(steps);
  }
}

void BlockMod::start(const Call& call, const Sequence& sequence, std::int64_t first_head,
                     const Block& block) {
  call_ = &call;
  sequence_ = sequence;
  block_ = block;
  relative_ = shifts_.start(call, sequence, first_head, block);
  program_.reset();
  const auto& program = relative_ ? call.plan.relative : call.plan.mod;
  if (!program) return;
  program_.emplace(*program, state_.data());
  program_->start(call, sequence, first_head, block,
                  relative_ ? shifts_.scalars : std::span<ir::ScalarValue>{});
}

void BlockMod::tile(std::int32_t k_first, int columns) {
  if (program_) program_->tile(k_first, columns);
  if (relative_) shifts_.find_of_tile(*call_, sequence_, block_, k_first);
}

}  // namespace fovea::cpu

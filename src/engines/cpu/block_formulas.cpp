#include "engines/cpu/block_formulas.h"

#include <algorithm>
#include <bit>

namespace fovea::cpu {

void BlockProgram::start(const Call& call, const Sequence& sequence, std::int64_t first_head,
                         const Block& block) {
  call_ = &call;
  sequence_ = sequence;
  first_head_ = first_head;
  block_ = block;
  head_ = -1;
}

void BlockProgram::tile(std::int32_t k_first, int columns) {
  k_first_ = k_first;
  columns_ = columns;
  if (head_ >= 0) run_.columns(k_first_, columns_);
}

void BlockProgram::select_head(int head) {
  if (head == head_) return;
  head_ = head;
  run_.begin(call_->place(sequence_, first_head_ + head));
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

Part KeepBits::trim(int first, int last) const {
  std::uint64_t any[keep_words] = {};
  for (int r = first; r < last; ++r) {
    for (int w = 0; w < keep_words; ++w) any[w] |= row(r)[w];
  }
  Part part{first, last, 0, 0};
  for (int w = keep_words; w-- > 0;) {
    if (any[w] == 0) continue;
    part.column_first = 64 * w;
    if (part.column_last == 0) part.column_last = 64 * w + 64 - std::countl_zero(any[w]);
  }
  return part;
}

void find_kept(BlockProgram& mask, const Call& call, int rows, int columns, const KeepBits& keep) {
  std::ranges::fill(keep.words.first(static_cast<std::size_t>(rows * keep_words)), 0);
  mask.for_strips({0, rows, 0, columns}, call.kernels,
                  [&](const StripRun::Strip& strip, int base) {
                    mask.run().elements(0, strip);
                    mask.run().keep_bits(0, strip, keep.row(base + strip.row), keep_words);
                  });
}

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

}  // namespace fovea::cpu

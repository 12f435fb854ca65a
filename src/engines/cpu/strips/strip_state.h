// What a StripRun has in memory: a StripState followed by the registers. Also how captured tensors
// are read into them. An index is clamped to the tensor unless it is known to be inside, so that no
// formula can read outside. A row or strip that is contiguous in memory is read as vectors, or not
// copied at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engines/cpu/strips/strip.h"
#include "engines/cpu/strips/strip_code.h"

namespace fovea::cpu {

// Bytes from the state's start to each kind of register, and from one register to the next.
struct StripLayout {
  std::size_t uniform = 0, row = 0, column = 0, element = 0, views = 0, row_at = 0, total = 0;
  std::size_t row_pitch = 0, column_pitch = 0, element_pitch = 0, row_at_pitch = 0;
};
StripLayout layout_of(const StripCode& code, int rows, int columns);

// Where the values of an Element load are now, and what its fixed indices make of the rows.
struct LoadView {
  const void* data = nullptr;
  std::int64_t row_step = 0;      // in cells
  std::int64_t row_distance = 0;  // in elements: from row to row of the tensor, if `even`
  bool even = false;
};

// Where the registers of each kind of storage begin, as one stage sees them.
struct StorageBases {
  std::array<const std::byte*, storage_count> base{};
  std::array<std::size_t, storage_count> pitch{};
  std::array<std::int64_t, storage_count> row_step{};
};

struct StripState {
  const StripCode* code = nullptr;
  StripLayout layout;
  LeafValues leaves;
  std::int32_t k_first = 0;
  StorageBases bases;  // of the last strip

  std::byte* at(std::size_t offset) { return reinterpret_cast<std::byte*>(this) + offset; }
  const std::byte* at(std::size_t offset) const {
    return reinterpret_cast<const std::byte*>(this) + offset;
  }
  std::uint32_t* uniform() { return reinterpret_cast<std::uint32_t*>(at(layout.uniform)); }
  LoadView& view(std::uint32_t load) { return reinterpret_cast<LoadView*>(at(layout.views))[load]; }
  const LoadView& view(std::uint32_t load) const {
    return reinterpret_cast<const LoadView*>(at(layout.views))[load];
  }
  // Of an Element load: the element that each row of the block starts from.
  std::int64_t* row_at(std::uint32_t load) {
    return reinterpret_cast<std::int64_t*>(at(layout.row_at + load * layout.row_at_pitch));
  }
  std::span<const LoadIndex> indices(const StripLoad& load) const {
    return std::span(code->indices).subspan(load.first_index, load.indices);
  }
  int panel_width() const { return code->kernels.panel_width; }

  // For a vector over rows or columns, cut into lines of a panel's width.
  StorageBases lines(ir::Stage stage) const;
  StorageBases strip() const;  // for the strip of the first rows and columns
  void move_to(const StripRun::Strip& strip);
  StripValue find(const StripOperand& operand, const StorageBases& in) const {
    const auto storage = static_cast<std::size_t>(operand.storage);
    if (operand.storage == Storage::Load) {
      return {view(operand.number).data, view(operand.number).row_step, 1};
    }
    return {in.base[storage] + operand.number * in.pitch[storage], in.row_step[storage], 1};
  }
};

void prepare_load(StripState& state, const StripLoad& load, int rows);  // after the values of rows
void load_line(StripState& state, const StripLoad& load, int count);    // of a Row or Column load
void load_strip(StripState& state, const StripLoad& load,
                const StripRun::Strip& strip);  // of an Element load

}  // namespace fovea::cpu

// What a StripRun has in its memory: this header, and behind it the registers. Shared by strip_run
// and strip_loads.
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

// Where the registers of each home are, as one stage sees them.
struct Homes {
  std::array<const std::byte*, home_count> base{};
  std::array<std::size_t, home_count> pitch{};
  std::array<std::int64_t, home_count> row_step{};
};

struct StripState {
  const StripCode* code = nullptr;
  StripLayout layout;
  LeafValues leaves;
  std::int32_t k_first = 0;
  Homes homes;  // of the last strip

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

  // The homes of a vector over rows or columns, cut into lines of a panel's width.
  Homes lines(ir::Stage stage) const;
  Homes strip() const;  // of the strip in the corner
  void move_to(const StripRun::Strip& strip);
  StripValue find(const StripOperand& operand, const Homes& in) const {
    const auto home = static_cast<std::size_t>(operand.home);
    if (operand.home == Home::Load) {
      return {view(operand.number).data, view(operand.number).row_step, 1};
    }
    return {in.base[home] + operand.number * in.pitch[home], in.row_step[home], 1};
  }

  // strip_loads.cpp
  void prepare_load(const StripLoad& load, int rows);                    // after the values of rows
  void load_line(const StripLoad& load, int count);                      // of a Row or Column load
  void load_strip(const StripLoad& load, const StripRun::Strip& strip);  // of an Element load
};

}  // namespace fovea::cpu

// What a StripProgram consists of: steps in order, by stage and phase, and where every value is
// stored. From formulas to steps: lower, fuse, order, assign registers, look up kernels.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engines/cpu/kernels/strip_table.h"
#include "engines/cpu/kernels/table.h"
#include "engines/cpu/strips/strip.h"
#include "ir/op.h"
#include "ir/tape.h"

namespace fovea::cpu {

// Where a value lies: in a register of its stage, in the caller's strips, or where the load of this
// number has put it (which may be the tensor itself). Score and Grad are not neighbours: the
// compiler would read both pointers in one load, which would wait for the two stores before it.
enum class Storage : std::uint8_t { Uniform, Row, Column, Element, Score, Load, Grad };
inline constexpr std::size_t storage_count = 7;

struct StripOperand {
  Storage storage = Storage::Uniform;
  std::uint32_t number = 0;
};

// Values of (b, h): computed one by one.
struct ScalarStep {
  ir::Op op{};
  std::uint32_t target = 0;  // Uniform registers
  std::array<std::uint32_t, 3> source{};
  std::uint32_t payload = 0;                   // constant bits, or a slot
  std::uint32_t first_index = 0, indices = 0;  // of a load: in StripCode::scalar_indices
};

// Everything else: one loop over a vector of rows, of columns, or over a strip.
struct VectorStep {
  enum class Kind : std::uint8_t { Kernel, Positions, Load };
  Kind kind = Kind::Kernel;
  std::uint8_t operands = 0;
  std::int32_t mode = 0;
  StripKernel kernel = nullptr;
  StripOperand out;
  std::array<StripOperand, 4> in{};
  std::uint32_t load = 0;  // in StripCode::loads
};

// One index of a load, seen along the row that is loaded.
struct LoadIndex {
  enum class Form : std::uint8_t {
    Fixed,  // one value for the row
    Line,   // changes by `slope` from one column to the next
    Free,   // any vector
  };
  Form form = Form::Fixed;
  bool has_source = true;  // Line in a strip: slope * k, plus the source if there is one
  std::int32_t slope = 0;
  StripOperand source;
};

struct StripLoad {
  ir::Stage stage{};
  std::uint32_t slot = 0;
  std::uint32_t first_index = 0, indices = 0;  // in StripCode::indices
  std::uint32_t element = 0;                   // of an Element load: which of them it is
  StripOperand target;                         // where it goes unless it stays in the tensor
};

struct StripCode {
  KernelTable kernels{};
  std::vector<ScalarStep> uniform;
  std::vector<VectorStep> row, column;
  std::array<std::vector<VectorStep>, 2> phase;
  std::vector<StripLoad> loads;
  std::vector<LoadIndex> indices;
  std::vector<std::uint32_t> scalar_indices;
  std::vector<StripOperand> roots;
  std::uint32_t element_loads = 0;
  std::array<std::uint32_t, ir::stage_count> registers{};  // of each stage
};

StripCode compile_strips(const StripProgram::Roots& roots, const KernelTable& kernels);

}  // namespace fovea::cpu

// Which kernels there are and what each needs: one table row each, from which plans are put
// together. A new kernel is a header in device/ and a row in kernels.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "attention/device.h"
#include "attention/problem.h"
#include "cuda/kernels.h"
#include "engines/jit/device/arguments.h"
#include "engines/jit/device/shared_layout.h"

namespace fovea::jit {

class CapturedSums;

// What a kernel's tiles are, beside the types: chosen when a plan is made.
struct KernelShape {
  int d = 0, dv = 0;  // head dims of a tile: their class; dv of one chunk
  int dv_chunks = 1;
  int rows = 0, columns = 0;  // queries and keys of a tile
  int warps = 4;
  int blocks = 1;  // that must fit a multiprocessor at once
  int shared_bytes = 0;
  int most_blocks = 0;  // of a grid whose blocks take tiles as they come
  struct Constant {
    const char* name;
    int value;
  };
  std::vector<Constant> own{};  // further constants of this kernel's Config
};

// Which kernels a plan is made of: those for this GPU if there are, or those for every one.
enum class Tier { Best, General };

// All that a shape is chosen by.
struct ShapeInputs {
  const Problem& baked;
  int sm = 90;
  std::int64_t shared_memory = 0;                                           // of a block, at most
  int row_words = 0, column_words = 0, diagonal_words = 0, cell_bytes = 0;  // of the formula
  int captured_bytes = 0;  // of shared memory: CapturedSums::shared_bytes
  int multiprocessors = 1;
  Tier tier = Tier::Best;
  const CapturedSums* captured = nullptr;
};
ShapeInputs shape_inputs(const Problem& baked, const Device& device, Tier tier);

using Grid = cuda::Grid;

struct KernelRow {
  // `template <class Config> void <name>(const Arguments&)` of device/<header>, compiled as
  // fovea_<name>.
  const char* name;
  const char* header;
  bool asks_formula;  // else it is compiled once for all formulas
  bool (*in_plan)(const ShapeInputs& inputs);
  bool (*in_call)(const device::CallArguments& call);  // null: in every call of such a plan
  KernelShape (*shape)(const ShapeInputs& inputs);
  Grid (*grid)(const device::CallArguments& call, const KernelShape& shape);
  bool adds_captured = false;    // adds up gradients of captured tensors and scalars
  bool maps_tensors = false;     // takes MappedArgumentsOf<Arguments>: see hopper.h
  bool writes_captured = false;  // writes those gradients, if they are small: write_captured()
};

// In the order in which a call launches them.
std::span<const KernelRow> kernel_rows(Direction direction);

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// What kernels of forwards and backwards share.
device::TileSizes tile_sizes(const ShapeInputs& inputs, const KernelShape& shape);
bool is_packed(const ShapeInputs& inputs);
inline bool is_16_bit(DType dtype) { return dtype == DType::F16 || dtype == DType::BF16; }

// Their grids. a * b blocks of the shape's warps, in one
// dimension, since the others have at most 65535; refuses sizes that need too many.
Grid in_line(std::int64_t a, std::int64_t b, const KernelShape& shape);

Grid over_heads(const device::CallArguments& call, const KernelShape& shape);
// Before, between and behind packed sequences.
Grid over_gaps(const device::CallArguments& call, const KernelShape& shape);
// A thread for every k - q of a head: see device/distances.h.
Grid over_distances(const device::CallArguments& call, const KernelShape& shape);

}  // namespace fovea::jit

// Which kernels there are and what each needs: one row of a table for each, from which plans are
// put together. A new kernel is a header in device/ and a row in kernels.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "attention/problem.h"
#include "cuda/kernels.h"
#include "engines/jit/device/arguments.h"

namespace fovea::jit {

class Captured;

// What a kernel's tiles are, beside the types: chosen when a plan is made.
struct Shape {
  int d = 0, dv = 0;  // head dims of a tile: their class; dv of one chunk
  int dv_chunks = 1;
  int rows = 0, columns = 0;  // queries and keys of a tile
  int warps = 4;
  int blocks = 1;  // that shall fit a multiprocessor at once
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
struct ShapeFacts {
  const Problem& baked;
  int sm = 90;
  std::int64_t shared_memory = 0;                                           // of a block, at most
  int row_words = 0, column_words = 0, diagonal_words = 0, cell_bytes = 0;  // of the formula
  int captured_bytes = 0;  // of shared memory: Captured::shared_bytes
  int multiprocessors = 1;
  Tier tier = Tier::Best;
  const Captured* captured = nullptr;
};

using Grid = cuda::Grid;

struct KernelRow {
  // `template <class Config> void <name>(const Arguments&)` of device/<header>, compiled as
  // fovea_<name>.
  const char* name;
  const char* header;
  bool asks_formula;  // else it is compiled once for all formulas
  bool (*in_plan)(const ShapeFacts& facts);
  bool (*in_call)(const device::Call& call);  // null: in every call of such a plan
  Shape (*shape)(const ShapeFacts& facts);
  Grid (*grid)(const device::Call& call, const Shape& shape);
  bool adds_captured = false;    // up the gradients of captured tensors and scalars
  bool maps_tensors = false;     // takes MappedArgumentsOf<Arguments>: see hopper.h
  bool writes_captured = false;  // those gradients, if they are small: device/captured_beside.h
};

// In the order in which a call launches them.
std::span<const KernelRow> kernel_rows(Direction direction);

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Grids that kernels of forwards and backwards share. a * b blocks of the shape's warps, in one
// dimension, since the others have at most 65535; refuses sizes that need too many.
Grid in_line(std::int64_t a, std::int64_t b, const Shape& shape);

Grid over_heads(const device::Call& call, const Shape& shape);
// Before, between and behind packed sequences.
Grid over_gaps(const device::Call& call, const Shape& shape);
// A thread for every k - q of a head: see device/distances.h.
Grid over_distances(const device::Call& call, const Shape& shape);

}  // namespace fovea::jit

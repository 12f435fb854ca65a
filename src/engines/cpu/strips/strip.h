// Formulas over strips of scores: a Program's formulas compiled once, at plan time, and run by a
// small interpreter whose steps are vector loops (kernels/strip_ops.h). Values that change with q
// alone are vectors over rows, those that change with k alone vectors over columns, all others
// strips of strip_rows x panel_width scores, which stay in the first-level cache.
//
// Called by forward, backward and code that needs masks; knows nothing of softmax or tiles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "engines/cpu/kernels/table.h"
#include "ir/eval.h"
#include "ir/expr.h"

namespace fovea::cpu {

// What the leaves are, for one head of one sequence.
struct LeafValues {
  std::int32_t b = 0, h = 0, B = 0, H = 0, Hkv = 0, Sq = 0, Skv = 0;
  std::span<const ir::ScalarValue> scalars;  // declared, then lifted
  std::span<const ir::TensorView> tensors;
};

struct StripCode;
struct StripState;

class StripProgram {
 public:
  // Roots before `second_phase` are computed by elements(0, ...); the others, which alone may use
  // the leaf `grad`, by elements(1, ...), and may use what the first phase has computed.
  // `in_place`: root 0, one of the first phase, is stored over the scores. The second phase then
  // does not look at the score strip: it has kept what it needs of it.
  struct Roots {
    std::span<const ir::Expr> all;
    std::size_t second_phase = 0;
    bool in_place = false;
  };
  StripProgram(const Roots& roots, const KernelTable& kernels);

  // Memory that a StripRun needs, for blocks of at most `rows` rows and tiles of `columns` columns.
  std::size_t state_bytes(int rows, int columns) const;
  std::size_t memory_bytes() const;  // of the program itself
  const StripCode& code() const { return *code_; }

 private:
  std::shared_ptr<const StripCode> code_;
};

// The values of one program on one thread. Allocates nothing: it lives in memory of state_bytes,
// aligned to 64. Order of use: begin, rows, columns, elements; each may be repeated and
// leaves what came before it in place.
class StripRun {
 public:
  StripRun(const StripProgram& program, void* state, int rows, int columns);

  void begin(const LeafValues& leaves);           // values of (b, h)
  void rows(std::int32_t q_first, int count);     // values of q = q_first + i (wraps)
  void columns(std::int32_t k_first, int count);  // values of k
  // The strip of rows [row, row + rows) and columns [column, column + columns): rows <= strip_rows,
  // column a multiple of panel_width, columns <= panel_width. `score` and `grad` have rows
  // panel_width apart and are read, and written in place, over their whole width; grad is null in
  // phase 0. Phase 1 is of the strip that phase 0 was called for last.
  struct Strip {
    int row = 0, rows = 0, column = 0, columns = 0;
    float* score = nullptr;
    const float* grad = nullptr;
  };
  void elements(int phase, const Strip& strip);

  // Of the last strip. A root that is a load may lie in the tensor itself.
  StripValue value(std::size_t root) const;
  // Which columns have a true root: column c of the tile is bit c % 64 of bits[r * words + c / 64],
  // r counted from the strip's first row. The strip's own columns are added to what is there, so
  // the words are zero at first; a strip can be as narrow as 16 columns.
  void keep_bits(std::size_t root, const Strip& strip, std::uint64_t* bits, int words) const;

 private:
  StripState* state_;
};

}  // namespace fovea::cpu

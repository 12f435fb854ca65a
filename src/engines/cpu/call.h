// One call of the CPU engine: what a plan knows, what the caller bound, and who runs the tasks.
// Forward and backward both work on this.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "attention/arena.h"
#include "attention/bindings.h"
#include "attention/problem.h"
#include "engines/cpu/captured/captured.h"
#include "engines/cpu/kernels/table.h"
#include "engines/cpu/strips/strip.h"
#include "engines/cpu/tiles/tiles.h"

namespace fovea::cpu {

// The kernels of an instruction set that this processor's family may have, by its name in
// Device::isa.
const KernelTable& kernels_named(std::string_view isa);

// A Problem made ready, once per plan.
struct Prepared {
  Prepared(const Problem& problem, const KernelTable& table, int threads);

  Problem baked;
  const KernelTable& kernels;
  int workers;  // at most so many tasks run at once
  bool pairs;   // products of bf16 pairs: cells of their factors hold two numbers along the sum
  TileMap tiles;
  std::optional<StripProgram> mask;  // its root: what is kept
  // score_mod without what it adds that changes with neither k nor the score: that moves a row's
  // lse, but none of its probabilities, and is added to the lse alone (`score + 300` loses no
  // digits).
  std::optional<StripProgram> mod;    // forward: in place of the scores; backward: see backward.h
  std::optional<StripProgram> shift;  // what was left out, one value per row
  // The same for what it adds that grows along k, slope * (k - q) and the like: `relative` is mod
  // with k counted from the middle of the tile, and the rest of it the same for a row of the tile.
  // Its one scalar more, the last, is that middle.
  std::optional<StripProgram> relative;
  std::optional<StripProgram> slope;  // one value per row
  int slope_k = 0, slope_q = 0;       // slope * f32(slope_k * k + slope_q * q)
  CapturedGradients captured;         // gradients that are wanted besides those of q, k and v
  bool grad_passes = true;            // backward: the modifier's derivative by the score is 1

  // Bytes of the state of mod or relative, whichever runs; and of the values per row.
  std::size_t mod_state_bytes() const;
  std::size_t row_state_bytes() const;
  std::int64_t cells(std::int64_t numbers) const { return pairs ? (numbers + 1) / 2 : numbers; }
  void multiply(const Product& product) const {
    (pairs ? kernels.pairs->multiply : kernels.multiply)(product);
  }

 private:
  void compile_mod(std::optional<StripProgram>& into, const ir::Expr& score);
};

// A reference to a function of (task, worker): unlike std::function it never allocates.
class TaskBody {
 public:
  template <class Function>
  TaskBody(const Function& function)
      : function_(&function), run_([](const void* f, std::int64_t task, int worker) {
          (*static_cast<const Function*>(f))(task, worker);
        }) {}
  void operator()(std::int64_t task, int worker) const { run_(function_, task, worker); }

 private:
  const void* function_;
  void (*run_)(const void*, std::int64_t, int);
};

struct Call {
  Call(const Prepared& prepared, const Bindings& bindings, std::span<ir::ScalarValue> values);

  const Prepared& plan;
  const Problem& baked;
  const KernelTable& kernels;
  const Bindings& bound;
  const Sizes& sizes;
  Geometry geometry;
  Executor& executor;
  int workers;
  float scale;
  std::span<const ir::ScalarValue> scalars;  // declared, then lifted

  std::int64_t heads_per_group() const { return sizes.hkv == 0 ? 0 : sizes.h / sizes.hkv; }

  // Where tensors have batch b: packed ones have one.
  std::int64_t batch(const Sequence& sequence) const {
    return baked.layout == Layout::Thd ? 0 : sequence.b;
  }
  // Rows from `row` on of one head, as kernels read and write them.
  Strided rows(const BoundTensor& tensor, const TensorSpec& spec, std::int64_t b, std::int64_t head,
               std::int64_t row) const;

  // What formulas see: one head, or the heads of one group.
  LeafValues leaves(const Sequence& sequence, std::int64_t head) const;
  KeySequence keys(const Sequence& sequence, std::int64_t group) const;
  std::int32_t head_seen(std::int64_t head) const;  // with its offset

  // Runs body(task, worker) for every task. No two tasks of one worker at a time; tasks wait for
  // nothing. `flops`: what it costs all in all, since little work is done sooner alone. Tasks next
  // to one another are best done on one memory node.
  void parallel(std::int64_t tasks, double flops, TaskBody body) const;
  // The same, if it is known which node should take which: see WaveSchedule::homes.
  void parallel(std::span<const std::int64_t> homes, double flops, TaskBody body) const;
};

// Dropout of one call: which scores are not dropped, as bits.
struct Dropout {
  explicit Dropout(const Bindings& bindings);

  bool any() const { return probability > 0; }
  float scale() const { return 1 / (1 - probability); }
  // Of `columns` scores of one row, from position k on.
  void bits(const KernelTable& kernels, const LeafValues& leaves, std::int32_t q, std::int32_t k,
            int columns, std::uint64_t* out) const;

  float probability;
  std::uint64_t threshold, seed, offset;
};

// rows x columns in panels, `columns` rounded up to whole ones.
Panels take_panels(Arena& arena, const KernelTable& kernels, std::int64_t rows,
                   std::int64_t columns);

constexpr Panels from_row(Panels panels, std::int64_t row, int panel_width) {
  return {panels.data + row * panel_width, panels.rows};
}
constexpr Panels from_column(Panels panels, std::int64_t column) {  // of a panel's first column
  return {panels.data + column * panels.rows, panels.rows};
}

}  // namespace fovea::cpu

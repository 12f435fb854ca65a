// One call of the CPU engine: what a plan knows, what the caller bound, and who runs the tasks.
// Forward and backward both work on this.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "attention/arena.h"
#include "attention/bindings.h"
#include "attention/problem.h"
#include "engines/cpu/prepare.h"

namespace fovea::cpu {

// The kernels of an instruction set that this processor's family may have, by its name in
// Device::isa.
const KernelTable& kernels_named(std::string_view isa);

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

  // The index of the sequence's batch in the tensors: 0 if packed, since packed tensors have one
  // batch.
  std::int64_t batch(const Sequence& sequence) const {
    return baked.layout == Layout::Thd ? 0 : sequence.b;
  }
  // Rows from `row` on of one head, as kernels read and write them.
  Strided rows(const BoundTensor& tensor, const TensorSpec& spec, std::int64_t b, std::int64_t head,
               std::int64_t row) const;

  // What formulas read: for one head, or for the heads of one group.
  LeafValues leaves(const Sequence& sequence, std::int64_t head) const;
  KeySequence keys(const Sequence& sequence, std::int64_t group) const;
  std::int32_t head_seen(std::int64_t head) const;  // the head that formulas read: with its offset

  // Runs body(task, worker) for every task. A worker runs one task at a time; tasks do not wait for
  // each other. `flops`: of all tasks together; if they are few, the caller does them alone.
  // Neighbouring tasks are done on one memory node if possible.
  void parallel(std::int64_t tasks, double flops, TaskBody body) const;
  // The same if it is known which tasks belong to which node: see WaveSchedule::homes.
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

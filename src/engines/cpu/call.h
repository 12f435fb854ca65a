// One call of the CPU engine: what a plan knows, what the caller bound, and who runs the tasks.
// Forward and backward both work on this.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include "attention/arena.h"
#include "attention/bindings.h"
#include "attention/problem.h"
#include "engines/cpu/blocks.h"
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

inline constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

constexpr std::int64_t heads_per_group(const Sizes& sizes) {
  return sizes.hkv == 0 ? 0 : sizes.h / sizes.hkv;
}

// A key/value head of a sequence.
struct KeyHead {
  Sequence sequence;
  std::int64_t group = 0;  // of query heads: those that read it
};

// A block of the query rows that read a key/value head.
struct QueryBlock : KeyHead, Block {
  std::int64_t first_head = 0;  // of all query heads

  std::int64_t head_of(int row) const { return first_head + row / rows; }
  std::int64_t position_of(int row) const { return position + row % rows; }  // in the sequence
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

  std::int64_t heads_per_group() const { return cpu::heads_per_group(sizes); }
  KeyHead key_head(std::int64_t number) const {  // b * Hkv + g
    return {geometry.sequence(number / sizes.hkv), number % sizes.hkv};
  }
  // Block `index` of the queries of a key/value head; nothing: it has fewer. `rows`: of a block.
  std::optional<QueryBlock> query_block(const KeyHead& keys, std::int64_t index,
                                        int rows = block_rows) const;

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
  KeySequence keys(const KeyHead& head) const;
  std::int32_t head_seen(std::int64_t head) const;  // the head that formulas read: with its offset

  // Runs body(task, worker) for every task. A worker runs one task at a time; tasks do not wait for
  // each other. `flops`: of all tasks together; if they are few, the caller does them alone.
  // Neighbouring tasks are done on one memory node if possible.
  void parallel(std::int64_t tasks, double flops, TaskBody body) const;
  // The same if it is known which tasks belong to which node: see WaveSchedule::homes.
  void parallel(std::span<const std::int64_t> homes, double flops, TaskBody body) const;
};

// rows x columns in panels, `columns` rounded up to whole ones.
Panels take_panels(Arena& arena, const KernelTable& kernels, std::int64_t rows,
                   std::int64_t columns);

inline std::span<std::byte> take_bytes(Arena& arena, std::size_t bytes, std::int64_t times = 1) {
  return arena.take<std::byte>(static_cast<std::int64_t>(bytes), times);
}

// Memory for several objects of a kind, each laid out by its constructor: Kind(arena, plan, sizes).
template <class Kind>
class Copies {
 public:
  Copies() = default;
  Copies(Arena& arena, const Prepared& plan, const Sizes& sizes, std::int64_t count) {
    Arena measure("cpu", nullptr);
    Kind(measure, plan, sizes);
    bytes_ = measure.used();
    all_ = take_bytes(arena, bytes_, count);
  }

  Kind find(const Call& call, std::int64_t number) const {
    Arena arena("cpu", all_.data() + static_cast<std::size_t>(number) * bytes_);
    return {arena, call.plan, call.sizes};
  }

 private:
  std::size_t bytes_ = 0;
  std::span<std::byte> all_;
};

constexpr Panels from_row(Panels panels, std::int64_t row, int panel_width) {
  return {panels.data + row * panel_width, panels.rows};
}
constexpr Panels from_column(Panels panels, std::int64_t column) {  // of a panel's first column
  return {panels.data + column * panels.rows, panels.rows};
}

}  // namespace fovea::cpu

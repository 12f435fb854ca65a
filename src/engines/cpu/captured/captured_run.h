// The sums of captured gradients in one call.
//
// The work of a backward is cut into chunks of keys: chunk c of sequence b and key/value head g.
// Each belongs to a lane (captured_lanes.h). The chunks of a lane run one after the other, in
// order; lanes run in parallel. Use in a call, with a barrier after each step:
//   1. CapturedRun::clear(task) for every task < clear_tasks()
//   2. the chunks: all of lane l in increasing order of (b, g, c), each strip handed to add(l, ...)
//   3. CapturedRun::write(task) for every task < write_tasks()
#pragma once

#include <cstdint>
#include <span>

#include "attention/bindings.h"
#include "engines/cpu/captured/captured.h"
#include "engines/cpu/captured/row_balance.h"
#include "engines/cpu/strips/strip.h"

namespace fovea::cpu {

// Allocates nothing: it lives in memory of workspace_bytes, aligned to 64, which its constructor
// begins to fill (once, before any task). Threads may call its methods in the order above.
class CapturedRun {
 public:
  // Throws InvalidArgument if a tensor is bound larger than declared.
  CapturedRun(const CapturedGradients& captured, const Bindings& bindings,
              const ChunkCounts& counts, void* memory);

  // Lanes of this call. At most as many as there are chunks; 0 if there are none.
  std::int64_t lanes() const { return lanes_.count; }
  std::int64_t lane_of(std::int64_t b, std::int64_t g, std::int64_t chunk) const {
    return lanes_.lane_of(b, g, chunk);
  }

  // How many numbers clear() and write() go through in total.
  double numbers() const;

  // Zeros wherever add() will add.
  std::int64_t clear_tasks() const;
  void clear(std::int64_t task) const;

  // Adds the last strip of `run`, whose elements(1, strip) has been called. `live`: one word per
  // row of the strip, bit c set if the score in its column c is alive; null: all are. What is
  // not alive adds nothing, whatever its gradient is.
  void add(std::int64_t lane, const StripRun& run, std::size_t first_root,
           const StripRun::Strip& strip, const std::uint64_t* live) const;

  // The same strip for BalanceSums: `p` are its probabilities, `row` its first row in the block.
  struct BlockRows {
    const float* p;
    int row;
    const BalanceSums& sums;
    const KernelTable& kernels;
  };
  void balance(const StripRun& run, std::size_t first_root, const StripRun::Strip& strip,
               const BlockRows& block) const;
  // Adds x to element `at` of a row term; after the chunks.
  void add_to_row_term(std::size_t term, std::int64_t at, double x) const;

  // Every wanted gradient, in its type and strides.
  std::int64_t write_tasks() const;
  void write(std::int64_t task) const;

 private:
  void write_tensor(const CapturedTarget& target, std::int64_t task) const;
  void write_scalars() const;
  void find_elements(const StripRun& run, std::size_t first_root, std::size_t term, int rows,
                     std::int64_t* to) const;
  double* lane_sums(std::int64_t lane) const { return layout_.sums + lane * layout_.lane_step; }

  const CapturedGradients& captured_;
  const Bindings& bindings_;
  CapturedGradients::SumLayout layout_;
  GradientLanes lanes_;
};

}  // namespace fovea::cpu

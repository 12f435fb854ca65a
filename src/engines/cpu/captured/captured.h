// Gradients of captured tensors and scalars. Each wanted one is a sum over scores; who sums what is
// fixed by shapes alone, so that the result is the same for any number of threads.
//
// The work of a backward is cut into chunks of keys: chunk c of sequence b and key/value head g.
// Each belongs to a lane (captured_lanes.h). The chunks of a lane run one after the other, in
// order; lanes run in parallel. Use in a call, with a barrier after each step:
//   1. CapturedRun::clear(task) for every task < clear_tasks()
//   2. the chunks: all of lane l in increasing order of (b, g, c), each strip handed to add(l, ...)
//   3. CapturedRun::write(task) for every task < write_tasks()
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "attention/bindings.h"
#include "attention/problem.h"
#include "engines/cpu/captured/captured_lanes.h"
#include "engines/cpu/captured/row_balance.h"
#include "engines/cpu/strips/strip.h"
#include "ir/diff.h"
#include "ir/expr.h"

namespace fovea::cpu {

struct CapturedTarget;

// What the Problem wants of its Program's derivative, made ready at plan time. Immutable.
class CapturedGradients {
 public:
  explicit CapturedGradients(const Problem& baked);  // nothing in a forward

  bool any() const { return !tensors_.empty() || !scalars_.empty(); }
  // Gradients and index expressions: roots of the strip program's second phase, from number
  // `first_root` on. May be empty if some are wanted: then zeros are written.
  const std::vector<ir::Expr>& roots() const { return roots_; }

  // Gradients that whole rows share: BalanceSums and CapturedRun::balance count them so.
  std::size_t row_terms() const { return row_terms_.size(); }

  std::size_t workspace_bytes(const Sizes& sizes,
                              const ChunkCounts& counts) const;  // aligned to 64

 private:
  friend class CapturedRun;
  // One load of a wanted tensor: its gradient is roots_[root], its indices follow.
  struct Load {
    ir::Expr load;
    std::size_t tensor, root;
    std::vector<std::optional<std::int32_t>> slopes;  // of each index
  };
  struct Scalar {
    std::uint32_t slot;
    std::optional<std::size_t> root;  // none: no formula uses it
  };
  // No index changes along k; roots_[weight] is the derivative that multiplies dS.
  struct OfRow {
    bool is_scalar;
    std::size_t number;  // in loads_ or scalars_
    std::size_t weight;
  };
  struct Layout;
  void add_row_terms(const ir::Expr& mod);
  void add_load(std::size_t tensor, const ir::LoadGradient& of);
  Layout lay_out(const Sizes& sizes, const ChunkCounts& counts, void* memory) const;

  Problem baked_;
  std::vector<ir::Expr> roots_;
  std::vector<CapturedTensor> tensors_;  // wanted ones
  std::vector<Load> loads_;
  std::vector<Scalar> scalars_;
  std::vector<OfRow> row_terms_;
};

// The sums of one call. Allocates nothing: it lives in memory of workspace_bytes, aligned to 64,
// which its constructor begins to fill (once, before any task). Its methods are safe from many
// threads as the order above says.
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

  // Numbers that clear() and write() go through, all in all.
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
  struct OfBlock {
    const float* p;
    int row;
    const BalanceSums& sums;
    const KernelTable& kernels;
  };
  void balance(const StripRun& run, std::size_t first_root, const StripRun::Strip& strip,
               const OfBlock& block) const;
  // Adds x to element `at` of a row term; after the chunks.
  void add_to_row_term(std::size_t term, std::int64_t at, double x) const;

  // Every wanted gradient, in its type and strides.
  std::int64_t write_tasks() const;
  void write(std::int64_t task) const;

 private:
  std::int64_t direct_clear_tasks(const CapturedTarget& target) const;
  std::int64_t tensor_write_tasks(const CapturedTarget& target) const;
  void write_tensor(const CapturedTarget& target, std::int64_t task) const;
  void write_scalars() const;
  void find_elements(const StripRun& run, std::size_t first_root, std::size_t term, int rows,
                     std::int64_t* to) const;
  double* lane_sums(std::int64_t lane) const { return sums_ + lane * lane_step_; }

  const CapturedGradients& captured_;
  const Bindings& bindings_;
  Lanes lanes_;
  std::span<CapturedTarget> targets_;  // of each wanted tensor
  double* sums_ = nullptr;             // of each lane: private copies of tensors, then scalars
  std::int64_t lane_step_ = 0, scalar_sums_ = 0;
};

}  // namespace fovea::cpu

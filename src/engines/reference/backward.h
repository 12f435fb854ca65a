// The backward, and what a tangent shares with it: the walk over heads and query rows, sums of
// gradients that belong to keys, to captured things and to sinks, and writing them.
#pragma once

#include <cstdint>
#include <span>

#include "engines/reference/forward.h"

namespace fovea::reference {

// Elements of all captured tensors whose gradient is wanted, by their declared extents.
std::int64_t captured_elements(const Problem& baked, const Sizes& sizes);

// Gradients of captured tensors: sums in double, dense over each tensor's extents, one tensor after
// the other; written to where the caller wants them at the end of a backward.
class CapturedSums {
 public:
  // Throws InvalidArgument if a wanted tensor is bound larger than it was declared: the workspace
  // was measured by the declaration.
  CapturedSums(const Problem& baked, const Bindings& bindings, std::span<double> sums);

  void add(std::uint32_t slot, const Indices& index, double x);  // clamped as the load's own
  void write() const;

 private:
  const Bindings& bindings_;
  std::array<std::span<double>, ir::limits::captured> sums_;  // by slot; empty: not wanted
};

class GradientLoops {
 public:
  explicit GradientLoops(ReferenceCall& call)
      : call_(call),
        scratch_(call.scratch),
        sizes_(call.bound.sizes),
        captured_(call.baked, call.bound, call.scratch.grad_captured) {}
  virtual ~GradientLoops() = default;

  void run();

  // The steps of run(), to be taken by many: each has a scratch of its own and does some of the
  // key/value heads of all sequences, every `step`th; then the sums of all are added up in order.
  virtual void write_empty_rows() const;
  void run_heads(std::int64_t first, std::int64_t step);
  void add_sums(const GradientLoops& other);
  void write_sums() const;

 protected:
  virtual void read_keys(const Sequence& sequence, std::int64_t g) { call_.read_keys(sequence, g); }
  // Adds what row i of a sequence gives to the sums, and writes its own gradient.
  virtual void row(const Sequence& sequence, std::int64_t h, std::int64_t i) = 0;

  Rows rows(const BoundTensor& tensor, const TensorSpec& spec) const {
    return {tensor, spec.dtype};
  }
  // Adds to the gradients of captured things what value(root) makes of each thing's roots, which
  // have been evaluated.
  template <class Value>
  void add_captured(const Derivatives& derivatives, const Value& value) {
    for (const Derivatives::Captured& one : derivatives.captured()) {
      const double x = value(
          [&](std::size_t i) { return derivatives.root(one.first_root + i, scratch_.cells); });
      if (one.is_tensor) {
        captured_.add(one.slot, derivatives.indices(one, scratch_.cells), x);
      } else {
        scratch_.grad_scalars[one.slot] += x;
      }
    }
  }
  // Zeros for rows that no loop visits, past a sequence's length or in no sequence.
  void write_zeros(const Rows& rows, bool of_keys, std::span<const double> zeros) const;

  ReferenceCall& call_;
  const Scratch& scratch_;
  const Sizes& sizes_;
  CapturedSums captured_;

 private:
  void write_keys(const Sequence& sequence, std::int64_t g) const;
};

void backward(ReferenceCall& call);

}  // namespace fovea::reference

// What the loads of a formula can read over a box: minima and maxima of the part of each captured
// tensor that its indices reach. Fills Box::loads for ir/range.
#pragma once

#include <span>
#include <vector>

#include "ir/range.h"
#include "ir/tensor_view.h"

namespace fovea::ir {

class LoadRanges {
 public:
  explicit LoadRanges(const Ranges& formula);

  // Ranges of formula.loads() over the box (whose own `loads` are not read). A part of more than
  // a million elements is not searched: its range is unknown.
  std::vector<Range> find(const Box& box, std::span<const TensorView> tensors) const;

  // The same where nothing may be allocated. `steps` has step_count() values, `inner` as many as
  // the formula has loads.
  struct Memory {
    Ranges::Memory steps;
    std::span<Range> inner;
  };
  std::size_t step_count() const { return step_count_; }
  std::size_t count() const { return entries_.size(); }

  // Load number `load` alone: `found` holds the ranges of all loads before it. Unknown if more than
  // `most` elements would be searched.
  struct Question {
    std::size_t load = 0;
    std::int64_t most = std::int64_t{1} << 20;
    std::span<const TensorView> tensors;
    std::span<const Range> found;
  };
  Range find(const Question& question, const Box& box, Memory memory) const;

 private:
  struct Entry {
    Expr load;
    Ranges indices;
    std::vector<std::uint32_t> inner;  // numbers of the loads inside the indices
  };
  std::vector<Entry> entries_;
  std::size_t step_count_ = 0;
};

// The smallest range that holds both.
Range hull(const Range& a, const Range& b);

}  // namespace fovea::ir

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

 private:
  struct Entry {
    Expr load;
    Ranges indices;
    std::vector<std::uint32_t> inner;  // numbers of the loads inside the indices
  };
  std::vector<Entry> entries_;
};

}  // namespace fovea::ir

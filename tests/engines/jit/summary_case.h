// Summaries of captured tensors made on the host, and the ranges that classify() may then assume:
// written down once more from what engines/jit/words.h says, to be compared with the device's code.
#pragma once

#include <span>
#include <vector>

#include "engines/jit/words.h"
#include "ir/eval.h"
#include "ir/range.h"

namespace fovea::test {

// The table of a summary, as device/summarize.h makes it.
std::vector<unsigned> make_table(const jit::Summary& summary, const ir::TensorView& tensor);

// Ranges of formula.loads() over the box: an element if all indices are single, blocks of
// elements if one index has a summary, else unknown.
std::vector<ir::Range> ranges_by_blocks(const ir::Ranges& formula, const ir::Box& box,
                                        std::span<const ir::TensorView> tensors);

}  // namespace fovea::test

#include "engines/jit/prepare.h"

namespace fovea::jit {
namespace {

RenderOptions render_options(const Problem& baked) {
  RenderOptions options;
  options.precise = baked.q.dtype == DType::F32 || baked.precision == Precision::Strict;
  options.gradient = baked.direction == Direction::Backward;
  return options;
}

}  // namespace

Prepared prepare(const Problem& baked, const Device& device) {
  Prepared out;
  out.baked = baked;
  out.formula = render(baked, render_options(baked));
  out.multiprocessors = device.multiprocessors;
  const ShapeFacts facts{baked, device.sm, device.shared_memory_per_block, out.formula.row_words,
                         out.formula.column_words};
  for (const KernelRow& row : kernel_rows(baked.direction)) {
    if (row.in_plan(baked)) out.kernels.push_back({&row, row.shape(facts)});
  }
  return out;
}

}  // namespace fovea::jit

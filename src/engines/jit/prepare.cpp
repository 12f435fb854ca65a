#include "engines/jit/prepare.h"

#include <algorithm>

#include "base/error.h"
#include "engines/jit/arguments.h"
#include "engines/jit/bake.h"
#include "engines/jit/captured_text.h"
#include "engines/jit/device/captured_arguments.h"
#include "engines/jit/hopper.h"

namespace fovea::jit {
namespace {

RenderOptions render_options(const Problem& baked, const CapturedSums& captured) {
  RenderOptions options;
  options.precise = baked.q.dtype == DType::F32 || baked.precision == Precision::Strict;
  options.splits_shift = options.precise;
  // One instruction instead of two; its error is far below what bf16 loses.
  options.coarse_tanh = baked.q.dtype == DType::BF16;
  options.gradient = baked.direction == Direction::Backward;
  options.extra = captured.roots();
  return options;
}

void add_summaries(PreparedPlan& out) {
  for (const Summary& summary : out.formula.summaries) {
    KernelSource source = summary_source(out.baked.program.tensors()[summary.slot].dtype);
    const auto at = std::ranges::find_if(
        out.units, [&](const PreparedUnit& unit) { return unit.source.name == source.name; });
    out.summary_units.push_back(static_cast<std::size_t>(at - out.units.begin()));
    if (at == out.units.end()) out.units.push_back({std::move(source), true, 0});
  }
}

}  // namespace

const PreparedKernel* PreparedPlan::mapped_kernel() const {
  const auto at = std::ranges::find_if(
      kernels, [](const PreparedKernel& kernel) { return kernel.row->maps_tensors; });
  return at == kernels.end() ? nullptr : &*at;
}

Rendered render_for(const Problem& baked, const CapturedSums& captured, const Device& device,
                    Tier tier) {
  RenderOptions options = render_options(baked, captured);
  options.splits_factors =
      baked.direction == Direction::Forward && has_hopper(shape_inputs(baked, device, tier));
  // For the kernel for sm_90 this also saves conversions of integers. Few queries are computed by
  // other kernels, which would lose time by it.
  options.splits_shift |= options.splits_factors && !splits_keys(baked);
  return render(baked, options);
}

ShapeInputs shape_inputs(const Problem& baked, const Device& device, const Rendered& formula,
                         const CapturedSums& captured, Tier tier) {
  ShapeInputs inputs = shape_inputs(baked, device, tier);
  inputs.row_words = formula.row_words;
  inputs.column_words = formula.column_words;
  inputs.diagonal_words = formula.diagonal_words;
  inputs.cell_bytes = formula.cell_bytes;
  inputs.captured_bytes = captured.shared_bytes();
  inputs.captured = &captured;
  return inputs;
}

PreparedPlan prepare(const Problem& baked, const Device& device, Tier tier) {
  PreparedPlan out;
  out.baked = baked;
  out.captured = CapturedSums(baked);
  out.formula = render_for(baked, out.captured, device, tier);
  out.multiprocessors = device.multiprocessors;
  // Measured on an H200: forwards save 1 to 3 us a call; backwards, most of whose kernels move
  // memory, take 1 % longer.
  out.overlaps = device.sm >= 90 && baked.direction == Direction::Forward;
  const ShapeInputs inputs = shape_inputs(baked, device, out.formula, out.captured, tier);
  const int targets = static_cast<int>(out.captured.targets().size());
  if (out.formula.words + targets * device::gradient_write_words <= most_words) {
    out.captured_words = {out.formula.words, targets};
  }
  const FormulaSource source{out.formula, captured_text(out.captured, out.formula.layout),
                             hopper_captured_text(out.captured, out.formula.layout),
                             out.captured_words};
  for (const KernelRow& row : kernel_rows(baked.direction)) {
    if (!row.in_plan(inputs)) continue;
    const KernelShape shape = row.shape(inputs);
    if (shape.shared_bytes > device.shared_memory_per_block) {
      throw Unsupported(
          "engine jit: this formula stages so many values for its rows and columns "
          "that kernel " +
          std::string(row.name) + " needs " + std::to_string(shape.shared_bytes) +
          " bytes of shared memory, of " + std::to_string(device.shared_memory_per_block));
    }
    out.kernels.push_back({&row, shape});
    out.units.push_back(
        {source_of(row, baked, shape, source), !row.asks_formula, shape.shared_bytes});
  }
  add_summaries(out);
  const bool counts_tiles = baked.direction == Direction::Forward && out.mapped_kernel() != nullptr;
  if (counts_tiles || !out.captured.targets().empty()) {
    out.clear_unit = out.units.size();
    out.units.push_back({captured_source("clear", "ClearArguments"), true, 0});
  }
  if (!out.captured.targets().empty()) {
    out.captured_write_unit = out.units.size();
    out.units.push_back({captured_source("captured_write", "GradientWrite"), true, 0});
  }
  return out;
}

}  // namespace fovea::jit

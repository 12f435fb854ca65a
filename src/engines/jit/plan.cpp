#include "engines/jit/plan.h"

#include <algorithm>

#include "attention/refuse.h"
#include "cuda/driver.h"
#include "engines/jit/arguments.h"
#include "engines/jit/captured_run.h"
#include "engines/jit/device/summary_call.h"

namespace fovea::jit {
namespace {

// What a plan baked and a call must not change.
void check_call(const Problem& baked, const Sizes& sizes) {
  const auto check = [](const char* name, std::int64_t features, std::int64_t most) {
    if (features <= most) return;
    refuse(name, features,
           "this plan of engine jit takes head dims up to " + std::to_string(most) +
               "; make a problem with these sizes");
  };
  check("d", sizes.d, baked.sizes.d);
  check("dv", sizes.dv, baked.sizes.dv);
}

class JitPlan : public Plan {
 public:
  JitPlan(Prepared prepared, int ordinal, std::vector<cuda::Handle> kernels)
      : prepared_(std::move(prepared)), ordinal_(ordinal), kernels_(std::move(kernels)) {
    has_maps_ = std::ranges::any_of(
        prepared_.kernels, [](const PreparedKernel& kernel) { return kernel.row->mapped; });
    // What was compiled is not needed again.
    prepared_.units.clear();
    prepared_.formula.text.clear();
  }

  std::size_t workspace_bytes(const Sizes& sizes) const override {
    Arena measure("jit", nullptr);
    Memory(measure, prepared_, sizes);
    return measure.used();
  }

  // Modules stay when the plan goes.
  std::size_t memory_bytes() const override {
    return sizeof *this + prepared_.kernels.size() * sizeof(PreparedKernel) +
           kernels_.size() * sizeof(cuda::Handle);
  }

  void run(const Bindings& bindings) const override {
    check_call(prepared_.baked, bindings.sizes);
    Arena arena("jit", bindings.workspace);
    const Memory memory(arena, prepared_, bindings.sizes);
    MappedArguments mapped;  // its words are not cleared: there are up to 4000
    Arguments& arguments = mapped.rest;
    pack(prepared_, bindings, memory, arguments);
    const cuda::OnDevice here(ordinal_);
    if (has_maps_) write_maps(arguments.call, mapped.maps);
    summarize(bindings, arguments);
    if (!prepared_.captured.targets().empty()) {
      clear_captured(prepared_, memory, bindings, kernels_[prepared_.captured_clear_unit]);
    }
    for (std::size_t i = 0; i < prepared_.kernels.size(); ++i) {
      launch(i, mapped, bindings.stream);
    }
    if (!prepared_.captured.targets().empty()) {
      write_captured(prepared_, memory, bindings, kernels_[prepared_.captured_write_unit]);
    }
  }

 private:
  // Tables of minima and maxima that tiles are classified by.
  void summarize(const Bindings& bindings, const Arguments& arguments) const {
    for (std::size_t i = 0; i < prepared_.formula.summaries.size(); ++i) {
      const Summary& summary = prepared_.formula.summaries[i];
      const long long table = arguments.words[summary.address];
      if (table == 0) continue;
      const ir::TensorView& view = bindings.tensors[summary.slot];
      device::SummaryCall call{};
      call.data = view.data;
      call.table = reinterpret_cast<unsigned*>(table);
      call.rank = view.rank;
      call.along = summary.index;
      std::ranges::copy(view.extent, call.extent);
      std::ranges::copy(view.stride, call.stride);
      const auto rank = static_cast<std::size_t>(view.rank);
      call.blocks = summary_bytes(summary, std::span(view.extent.data(), rank)) / 8;
      constexpr unsigned threads = 128, in_block = threads / 32;
      const auto blocks = static_cast<unsigned>((call.blocks + in_block - 1) / in_block);
      if (blocks == 0) continue;
      cuda::launch(kernels_[prepared_.summary_units[i]], {blocks, 1, 1, threads}, &call,
                   bindings.stream);
    }
  }

  void launch(std::size_t i, const MappedArguments& arguments, void* stream) const {
    const auto& [row, shape] = prepared_.kernels[i];
    if (row->in_call != nullptr && !row->in_call(arguments.rest.call)) return;
    const Grid grid = row->grid(arguments.rest.call, shape);
    if (grid.x == 0) return;
    const void* const given = row->mapped ? static_cast<const void*>(&arguments) : &arguments.rest;
    cuda::launch(kernels_[i], grid, given, stream, static_cast<unsigned>(shape.shared_bytes));
  }

  Prepared prepared_;
  int ordinal_;
  bool has_maps_ = false;
  std::vector<cuda::Handle> kernels_;
};

}  // namespace

std::unique_ptr<Plan> make_plan(Prepared prepared, const Device& device,
                                std::vector<cuda::Handle> kernels) {
  return std::make_unique<JitPlan>(std::move(prepared), device.ordinal, std::move(kernels));
}

}  // namespace fovea::jit

#include "engines/jit/plan.h"

#include <algorithm>
#include <mutex>

#include "attention/refuse.h"
#include "cuda/driver.h"
#include "engines/jit/arguments.h"
#include "engines/jit/captured_launches.h"
#include "engines/jit/device/captured_arguments.h"
#include "engines/jit/hopper.h"
#include "engines/jit/images.h"

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
  JitPlan(PreparedPlan prepared, const Device& device, std::vector<cuda::Handle> kernels)
      : prepared_(std::move(prepared)), device_(device), kernels_(std::move(kernels)) {
    // What was compiled is not needed again.
    prepared_.units.clear();
    prepared_.formula.text.clear();
  }

  std::size_t workspace_bytes(const Sizes& sizes) const override {
    Arena measure("jit", nullptr);
    device::CallArguments unused;
    CallWorkspace(measure, prepared_, sizes, unused);
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
    Arguments arguments;  // its words are not cleared: there are up to 4000
    const CallWorkspace memory(arena, prepared_, bindings.sizes, arguments.call);
    pack(prepared_, bindings, memory, arguments);
    const CapturedLaunches captured(prepared_, bindings, arguments);
    const cuda::OnDevice here(device_.ordinal);
    const PreparedKernel* const mapped = prepared_.mapped_kernel();
    const bool maps_tensors = mapped != nullptr && in_call(*mapped->row, arguments.call);
    if (maps_tensors) {
      // A forward's stagers copy cells that the hardware cannot copy; a backward runs the general
      // kernels.
      const bool forward = prepared_.baked.direction == Direction::Forward;
      const bool maps_cells =
          pack_cell_map(prepared_.formula, bindings, mapped->shape.rows, arguments);
      if (!can_map(arguments.call) || !(maps_cells || forward)) return general().run(bindings);
      pack_maps(arguments.call, mapped->shape, arguments.maps);
    }
    const bool cleared = summarize(bindings, arguments, memory);
    if (maps_tensors && !cleared && counts_query_tiles(arguments.call, mapped->shape)) {
      launch_clear(kernels_[prepared_.clear_unit],
                   {arguments.call.taken_tiles, memory.taken_words / 4}, prepared_,
                   bindings.stream);
    }
    captured.clear(kernels_[prepared_.clear_unit]);
    for (std::size_t i = 0; i < prepared_.kernels.size(); ++i) {
      launch(i, arguments, bindings.stream);
    }
    captured.write(kernels_[prepared_.captured_write_unit]);
  }

 private:
  // Tables of minima and maxima that tiles are classified by. The first kernel also clears the
  // words of taken tiles; returns whether there was one.
  bool summarize(const Bindings& bindings, const Arguments& arguments,
                 const CallWorkspace& memory) const {
    bool cleared = false;
    for (std::size_t i = 0; i < prepared_.formula.summaries.size(); ++i) {
      const Summary& summary = prepared_.formula.summaries[i];
      const long long table = arguments.words[summary.address];
      if (table == 0) continue;
      const ir::TensorView& view = bindings.tensors[summary.slot];
      device::SummarizeArguments call{};
      call.data = view.data;
      call.table = reinterpret_cast<unsigned*>(table);
      call.rank = view.rank;
      call.along = summary.index;
      std::ranges::copy(view.extent, call.extent);
      std::ranges::copy(view.stride, call.stride);
      const auto rank = static_cast<std::size_t>(view.rank);
      call.blocks = summary_bytes(summary, std::span(view.extent.data(), rank)) / 8;
      constexpr unsigned threads = device::summarize_threads, in_block = threads / 32;
      const auto blocks = static_cast<unsigned>((call.blocks + in_block - 1) / in_block);
      if (blocks == 0) continue;
      if (!cleared) {
        call.cleared = arguments.call.taken_tiles;
        call.cleared_words = memory.taken_words;
        cleared = true;
      }
      cuda::launch(kernels_[prepared_.summary_units[i]], {blocks, 1, 1, threads}, &call,
                   bindings.stream, 0, prepared_.overlaps);
    }
    return cleared;
  }

  static bool in_call(const KernelRow& row, const device::CallArguments& call) {
    return row.in_call == nullptr || row.in_call(call);
  }

  void launch(std::size_t i, const Arguments& arguments, void* stream) const {
    const auto& [row, shape] = prepared_.kernels[i];
    if (!in_call(*row, arguments.call)) return;
    const Grid grid = row->grid(arguments.call, shape);
    if (grid.x == 0) return;
    const void* const parameters =
        row->maps_tensors ? static_cast<const void*>(&arguments) : &arguments.call;
    cuda::launch(kernels_[i], grid, parameters, stream, static_cast<unsigned>(shape.shared_bytes),
                 prepared_.overlaps);
  }

  // For calls whose tensors the hardware cannot copy by tiles: compiled when the first comes.
  const Plan& general() const {
    std::call_once(general_once_, [&] {
      PreparedPlan prepared = prepare(prepared_.baked, device_, Tier::General);
      auto kernels = load_kernels(prepared, device_);
      general_ = make_plan(std::move(prepared), device_, std::move(kernels));
    });
    return *general_;
  }

  PreparedPlan prepared_;
  Device device_;
  std::vector<cuda::Handle> kernels_;
  mutable std::once_flag general_once_;
  mutable std::unique_ptr<Plan> general_;
};

}  // namespace

std::unique_ptr<Plan> make_plan(PreparedPlan prepared, const Device& device,
                                std::vector<cuda::Handle> kernels) {
  return std::make_unique<JitPlan>(std::move(prepared), device, std::move(kernels));
}

}  // namespace fovea::jit

#include "engines/cudnn/plan.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "attention/engine.h"
#include "base/error.h"
#include "cuda/driver.h"
#include "engines/cudnn/call.h"
#include "engines/cudnn/handles.h"
#include "engines/cudnn/packed.h"

namespace fovea::cudnn {
namespace {

// A table of a formula in device memory, by what is in it: most plans have the same few. Never
// freed, since a CUDA graph that was captured may read it when the plan is long gone.
void* table_on(int ordinal, const Table& table) {
  struct Kept {
    std::mutex mutex;
    std::map<std::pair<int, std::string>, cuda::Address> tables;
  };
  static Kept& process = *new Kept;
  const std::string bytes(reinterpret_cast<const char*>(table.values.data()),
                          table.values.size() * sizeof(float));
  const std::lock_guard lock(process.mutex);
  cuda::Address& address = process.tables[{ordinal, bytes}];
  if (address != 0) return reinterpret_cast<void*>(address);
  const cuda::OnDevice here(ordinal);
  const cuda::Driver& d = *cuda::driver();
  cuda::Address made = 0;
  cuda::check(d.allocate(&made, bytes.size()), "cuMemAlloc");
  const cuda::Result copied = d.to_device(made, bytes.data(), bytes.size());
  if (copied != 0) d.release(made);
  cuda::check(copied, "cuMemcpyHtoD");
  address = made;
  return reinterpret_cast<void*>(made);
}

class CudnnPlan : public Plan {
 public:
  CudnnPlan(const Problem& baked, const Device& device, std::vector<Slice> slices)
      : baked_(baked),
        ordinal_(device.ordinal),
        slices_(std::move(slices)),
        memory_(baked_, slices_.front().lowered.spec) {
    for (const Uniform& uniform : slices_.front().lowered.uniforms) {
      uniforms_.push_back({ir::Evaluator<double>(uniform.formula), uniform.decides});
    }
    for (const Table& table : slices_.front().lowered.tables) {
      tables_.push_back(table_on(ordinal_, table));
    }
    for (const Slice& slice : slices_) {
      places_.push_back(places_of(slice.lowered.spec));
      graph_bytes_ = std::max(graph_bytes_, slice.graph->workspace_bytes());
    }
    if (slices_.front().lowered.spec.packed()) {
      const Slice& last = slices_.back();
      packed_.emplace(baked_, slices_.front().lowered.spec, last.first + last.batch);
      const cuda::OnDevice here(ordinal_);
      packed_->load_kernels();
    }
  }

  std::size_t workspace_bytes(const Sizes& sizes) const override {
    return memory_.bytes() + (packed_ ? packed_->bytes(sizes) : 0) + graph_bytes_;
  }
  std::size_t memory_bytes() const override {
    return sizeof *this + slices_.size() * 200'000;  // a serialised plan has 70 to 250 KB
  }

  void run(const Bindings& bindings) const override {
    const Lowered& lowered = slices_.front().lowered;
    CudnnCall call(baked_, bindings, memory_);
    check_call(baked_, lowered, bindings);
    check_captured(call);
    const cuda::OnDevice here(ordinal_);
    void* const handle = handle_for(ordinal_, bindings.stream);
    auto* const own = static_cast<std::byte*>(bindings.workspace) + memory_.bytes();
    auto* const graph_workspace = own + (packed_ ? packed_->bytes(bindings.sizes) : 0);
    call.fill_workspace(lowered.spec);
    if (packed_) {
      packed_->begin(bindings, own);
    } else {
      call.clear_outputs(lowered);
    }
    std::array<void*, most_bound> pointers;  // as many as a slice has tensors
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      const Slice& slice = slices_[i];
      std::size_t count = 0;
      call.start_slice(slice.first);
      for (const GraphTensor& place : places_[i]) {
        const Tensor& tensor = slice.lowered.spec.tensors[place.tensor];
        pointers[count++] = packed_ && packed_->has(tensor)
                                ? packed_->pointer(tensor, bindings.sizes, own, slice.first)
                                : pointer(call, slice, place);
      }
      slice.graph->execute(handle, std::span(pointers.data(), count), graph_workspace);
    }
    if (packed_) packed_->end(bindings, own);
  }

 private:
  // A tensor of a graph, and where the formulas' view of it is, if it is a captured one.
  struct GraphTensor {
    std::uint32_t tensor = 0, view = 0;
  };

  static bool is_viewed(Role role) {
    return role == Role::Captured || role == Role::Bias || role == Role::GradBias;
  }

  // In the order of uids, as execute() wants them.
  static std::vector<GraphTensor> places_of(const Spec& spec) {
    std::vector<GraphTensor> places;
    std::uint32_t views = 0;
    for (std::uint32_t i = 0; i < spec.tensors.size(); ++i) {
      places.push_back({i, is_viewed(spec.tensors[i].role) ? views++ : 0});
    }
    std::ranges::sort(places, {},
                      [&](const GraphTensor& at) { return spec.tensors[at.tensor].uid(); });
    return places;
  }

  // Before anything is enqueued.
  void check_captured(CudnnCall& call) const {
    if (slices_.front().lowered.views.empty()) return;
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      call.start_slice(slices_[i].first);
      for (const GraphTensor& place : places_[i]) {
        const Tensor& tensor = slices_[i].lowered.spec.tensors[place.tensor];
        if (is_viewed(tensor.role)) call.captured(tensor, slices_[i].lowered.views[place.view]);
      }
    }
    call.start_slice(0);
  }

  void* pointer(CudnnCall& call, const Slice& slice, const GraphTensor& place) const {
    const Tensor& tensor = slice.lowered.spec.tensors[place.tensor];
    if (is_viewed(tensor.role)) return call.captured(tensor, slice.lowered.views[place.view]);
    if (tensor.role == Role::Table) return tables_[tensor.slot];
    if (tensor.role == Role::Uniform) return call.uniform(uniforms_[tensor.slot], tensor.type);
    return call.pointer(tensor);
  }

  Problem baked_;
  int ordinal_;
  std::vector<Slice> slices_;
  std::vector<std::vector<GraphTensor>> places_;  // by slice
  std::vector<CompiledUniform> uniforms_;
  std::vector<void*> tables_;  // by slot
  CallMemory memory_;
  std::optional<PackedCall> packed_;
  std::size_t graph_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Plan> make_plan(const Problem& baked, const Device& device,
                                std::vector<Slice> slices) {
  return std::make_unique<CudnnPlan>(baked, device, std::move(slices));
}

}  // namespace fovea::cudnn

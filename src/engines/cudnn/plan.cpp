#include "engines/cudnn/plan.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "attention/engine.h"
#include "attention/problem_text.h"
#include "base/error.h"
#include "base/log.h"
#include "cuda/driver.h"
#include "cuda/libraries.h"
#include "engines/cudnn/call.h"
#include "engines/cudnn/handles.h"
#include "engines/cudnn/judge.h"
#include "engines/cudnn/packed.h"
#include "store/store.h"

namespace fovea::cudnn {
namespace {

// Must change if graph.cpp builds another graph from the same GraphSpec.
constexpr const char* format = "1";

// Kernels are compiled for an architecture, and their grids laid out for a number of processors.
std::string environment(const Device& device) {
  return "cudnn " + cuda::version_text(cuda::cudnn_library().version) + " frontend " +
         frontend_version() + " sm_" + std::to_string(device.sm) + " with " +
         std::to_string(device.multiprocessors) + " multiprocessors, format " + format;
}

std::string line_of(const Problem& baked, std::int64_t batch) {
  Problem slice = baked;
  slice.sizes.b = batch;
  if (slice.layout == Layout::Thd) {  // as bake() has them
    slice.sizes.t_q = batch * slice.sizes.sq;
    slice.sizes.t_k = batch * slice.sizes.skv;
  }
  return print(slice);
}

store::Key key_of(const Problem& baked, std::int64_t batch, const GraphSpec& spec,
                  const Device& device) {
  return {"cudnn", environment(device), line_of(baked, batch) + "\n" + to_text(spec)};
}

std::vector<std::uint8_t> build_and_log(const GraphSpec& spec, const Device& device, void* handle,
                                        const std::string& line) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::uint8_t> bytes = build(spec, device, handle);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  if (log_enabled()) {
    log_line("cudnn: built a graph in " + std::to_string(static_cast<int>(took.count())) +
             " ms (neither in memory nor in a bundle or on disk): " + line);
  }
  return bytes;
}

// Graphs that plans of this process hold, by key and device.
struct LiveGraphs {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<const Graph>> graphs;
};
LiveGraphs& shared() {
  static LiveGraphs& process = *new LiveGraphs;
  return process;
}

std::shared_ptr<const Graph> read_back(const store::Key& key, const GraphSpec& spec,
                                       const Device& device, const std::string& line) {
  void* const handle = handle_for(device.ordinal, nullptr);
  const auto make = [&] { return build_and_log(spec, device, handle, line); };
  store::Origin origin = store::Origin::Built;
  const store::Blob blob = store::get_or_build(key, make, &origin);
  try {
    return load(blob, handle);
  } catch (const std::runtime_error& error) {
    if (origin == store::Origin::Built) throw;
    // This cuDNN does not take the stored plan after all.
    if (log_enabled()) {
      log_line(std::string("cudnn: a stored plan cannot be used, it is built again: ") +
               error.what());
    }
  }
  store::discard(key);
  return load(store::get_or_build(key, make), handle);
}

std::shared_ptr<const Graph> find_or_load(const Problem& baked, std::int64_t batch,
                                          const GraphSpec& spec, const Device& device) {
  const store::Key key = key_of(baked, batch, spec, device);
  const std::string name = std::to_string(device.ordinal) + "\n" + key.environment + key.content;
  LiveGraphs& all = shared();
  {
    const std::lock_guard lock(all.mutex);
    const auto at = all.graphs.find(name);
    if (auto known = at != all.graphs.end() ? at->second.lock() : nullptr) return known;
  }
  std::shared_ptr<const Graph> loaded = read_back(key, spec, device, line_of(baked, batch));
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.graphs, [](const auto& entry) { return entry.second.expired(); });
  all.graphs[name] = loaded;
  return loaded;
}

// The handle for a GPU that is here; null and a driver's stand-in for a described one.
void* handle_of(const Device& device) {
  if (device.described) {
    cuda::ensure_driver_or_stand_in();
    return nullptr;
  }
  return handle_for(device.ordinal, nullptr);
}

// Slices without their graphs.
std::vector<Slice> slices_of(const Problem& baked, const Lowered& first, const Device& device) {
  const Workarounds avoid = workarounds_for(cuda::cudnn_library().version, device.sm);
  std::vector<Slice> slices;
  std::int64_t start = 0;
  for (const std::int64_t batch : batches(baked)) {
    slices.push_back({start, batch, nullptr, start == 0 ? first : lower(baked, batch, avoid)});
    start += batch;
  }
  return slices;
}

// A real device is current while its graphs are made.
struct CurrentDevice {
  explicit CurrentDevice(const Device& device) {
    if (!device.described) here.emplace(device.ordinal);
  }
  std::optional<cuda::OnDevice> here;
};

}  // namespace

void check_graphs(const Problem& baked, const Lowered& first, const Device& device) {
  const CurrentDevice current(device);
  for (const Slice& slice : slices_of(baked, first, device)) {
    check_support(slice.lowered.spec, device, handle_of(device));
  }
}

void compile_graphs(const Problem& baked, const Lowered& first, const Device& device) {
  const CurrentDevice current(device);
  void* const handle = handle_of(device);
  for (const Slice& slice : slices_of(baked, first, device)) {
    const GraphSpec& spec = slice.lowered.spec;
    store::get_or_build(key_of(baked, slice.batch, spec, device), [&] {
      return build_and_log(spec, device, handle, line_of(baked, slice.batch));
    });
  }
}

std::vector<Slice> load_graphs(const Problem& baked, const Lowered& first, const Device& device) {
  const CurrentDevice current(device);
  prepare_handles(device.ordinal);
  std::vector<Slice> slices = slices_of(baked, first, device);
  for (Slice& slice : slices) {
    slice.graph = find_or_load(baked, slice.batch, slice.lowered.spec, device);
  }
  return slices;
}

std::string refuse_environment(const std::string& text) {
  const cuda::CudnnLibrary& library = cuda::cudnn_library();
  if (!library.usable()) return library.problem;
  std::set<std::string> here;
  for (int i = 0; i < cuda::device_count(); ++i) {
    here.insert(environment(cuda::find_device("cuda:" + std::to_string(i))));
  }
  if (here.contains(text)) return "";
  if (here.empty()) {  // no GPU: stored plans can be listed if the libraries are the same
    const std::string mine = environment({});
    const std::string libraries = mine.substr(0, mine.find(" sm_"));
    if (text.substr(0, text.find(" sm_")) == libraries) return "";
    here.insert(libraries);
  }
  std::string mine;
  for (const std::string& one : here) mine += (mine.empty() ? "" : "; ") + one;
  return "its plans are for " + text + ", here is " + mine;
}

namespace {

// A table of a formula in device memory, by what is in it: most plans have the same few. Never
// freed, since a CUDA graph that was captured may read it when the plan is long gone.
void* table_on(int ordinal, const HeadTable& table) {
  struct DeviceTables {
    std::mutex mutex;
    std::map<std::pair<int, std::string>, cuda::Address> tables;
  };
  static DeviceTables& process = *new DeviceTables;
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
    for (const UniformFormula& uniform : slices_.front().lowered.uniforms) {
      uniforms_.push_back({ir::Evaluator<double>(uniform.formula), uniform.decides});
    }
    for (const HeadTable& table : slices_.front().lowered.tables) {
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
      for (const PlacedTensor& place : places_[i]) {
        const GraphTensor& tensor = slice.lowered.spec.tensors[place.tensor];
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
  struct PlacedTensor {
    std::uint32_t tensor = 0, view = 0;
  };

  static bool is_viewed(TensorRole role) {
    return role == TensorRole::Captured || role == TensorRole::Bias || role == TensorRole::GradBias;
  }

  // In the order of uids, as execute() wants them.
  static std::vector<PlacedTensor> places_of(const GraphSpec& spec) {
    std::vector<PlacedTensor> places;
    std::uint32_t views = 0;
    for (std::uint32_t i = 0; i < spec.tensors.size(); ++i) {
      places.push_back({i, is_viewed(spec.tensors[i].role) ? views++ : 0});
    }
    std::ranges::sort(places, {},
                      [&](const PlacedTensor& at) { return spec.tensors[at.tensor].uid(); });
    return places;
  }

  // Before anything is enqueued.
  void check_captured(CudnnCall& call) const {
    if (slices_.front().lowered.views.empty()) return;
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      call.start_slice(slices_[i].first);
      for (const PlacedTensor& place : places_[i]) {
        const GraphTensor& tensor = slices_[i].lowered.spec.tensors[place.tensor];
        if (is_viewed(tensor.role)) call.captured(tensor, slices_[i].lowered.views[place.view]);
      }
    }
    call.start_slice(0);
  }

  void* pointer(CudnnCall& call, const Slice& slice, const PlacedTensor& place) const {
    const GraphTensor& tensor = slice.lowered.spec.tensors[place.tensor];
    if (is_viewed(tensor.role)) return call.captured(tensor, slice.lowered.views[place.view]);
    if (tensor.role == TensorRole::Table) return tables_[tensor.slot];
    if (tensor.role == TensorRole::Uniform)
      return call.uniform(uniforms_[tensor.slot], tensor.type);
    return call.pointer(tensor);
  }

  Problem baked_;
  int ordinal_;
  std::vector<Slice> slices_;
  std::vector<std::vector<PlacedTensor>> places_;  // by slice
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

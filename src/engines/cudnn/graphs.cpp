#include "engines/cudnn/graphs.h"

#include <chrono>
#include <map>
#include <mutex>
#include <set>

#include "attention/problem_text.h"
#include "base/error.h"
#include "base/log.h"
#include "cuda/driver.h"
#include "cuda/libraries.h"
#include "engines/cudnn/handles.h"
#include "engines/cudnn/judge.h"
#include "store/store.h"

namespace fovea::cudnn {
namespace {

// Changes when graph.cpp builds another graph from the same Spec.
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

store::Key key_of(const Problem& baked, std::int64_t batch, const Spec& spec,
                  const Device& device) {
  return {"cudnn", environment(device), line_of(baked, batch) + "\n" + to_text(spec)};
}

std::vector<std::uint8_t> build_and_log(const Spec& spec, const Device& device, void* handle,
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

// Graphs that some plan of this process holds, by key and device.
struct Shared {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<const Graph>> graphs;
};
Shared& shared() {
  static Shared& process = *new Shared;
  return process;
}

std::shared_ptr<const Graph> read_back(const store::Key& key, const Spec& spec,
                                       const Device& device, const std::string& line) {
  void* const handle = handle_for(device.ordinal, nullptr);
  const auto make = [&] { return build_and_log(spec, device, handle, line); };
  store::Origin origin = store::Origin::Built;
  const store::Blob blob = store::get_or_build(key, make, &origin);
  try {
    return load(blob, handle);
  } catch (const std::runtime_error& error) {
    if (origin == store::Origin::Built) throw;
    // A stored plan that this cuDNN does not take after all.
    if (log_enabled()) {
      log_line(std::string("cudnn: a stored plan is of no use, it is built again: ") +
               error.what());
    }
  }
  store::discard(key);
  return load(store::get_or_build(key, make), handle);
}

std::shared_ptr<const Graph> find_or_load(const Problem& baked, std::int64_t batch,
                                          const Spec& spec, const Device& device) {
  const store::Key key = key_of(baked, batch, spec, device);
  const std::string name = std::to_string(device.ordinal) + "\n" + key.environment + key.content;
  Shared& all = shared();
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

// Without their graphs.
std::vector<Slice> slices_of(const Problem& baked, const Lowered& first, const Device& device) {
  const Avoid avoid = what_to_avoid(cuda::cudnn_library().version, device.sm);
  std::vector<Slice> slices;
  std::int64_t start = 0;
  for (const std::int64_t batch : batches(baked)) {
    slices.push_back({start, batch, nullptr, start == 0 ? first : lower(baked, batch, avoid)});
    start += batch;
  }
  return slices;
}

// A real device is current while its graphs are made.
struct Current {
  explicit Current(const Device& device) {
    if (!device.described) here.emplace(device.ordinal);
  }
  std::optional<cuda::OnDevice> here;
};

}  // namespace

void check_graphs(const Problem& baked, const Lowered& first, const Device& device) {
  const Current current(device);
  for (const Slice& slice : slices_of(baked, first, device)) {
    check_support(slice.lowered.spec, device, handle_of(device));
  }
}

void compile_graphs(const Problem& baked, const Lowered& first, const Device& device) {
  const Current current(device);
  void* const handle = handle_of(device);
  for (const Slice& slice : slices_of(baked, first, device)) {
    const Spec& spec = slice.lowered.spec;
    store::get_or_build(key_of(baked, slice.batch, spec, device), [&] {
      return build_and_log(spec, device, handle, line_of(baked, slice.batch));
    });
  }
}

std::vector<Slice> load_graphs(const Problem& baked, const Lowered& first, const Device& device) {
  const Current current(device);
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
  if (here.empty()) {  // no GPU: of use for looking at, if the libraries are the same
    const std::string mine = environment({});
    const std::string libraries = mine.substr(0, mine.find(" sm_"));
    if (text.substr(0, text.find(" sm_")) == libraries) return "";
    here.insert(libraries);
  }
  std::string mine;
  for (const std::string& one : here) mine += (mine.empty() ? "" : "; ") + one;
  return "its plans are for " + text + ", here is " + mine;
}

}  // namespace fovea::cudnn

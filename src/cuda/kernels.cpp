#include "cuda/kernels.h"

#include <map>
#include <mutex>
#include <utility>

#include "base/error.h"

namespace fovea::cuda {
namespace {

using KernelKey = std::pair<Handle, const char*>;  // context, text

struct LoadedKernels {
  std::mutex mutex;
  std::map<KernelKey, Kernels> kernels;  // addresses of its values stay
};
LoadedKernels& loaded_kernels() {
  static LoadedKernels& process = *new LoadedKernels;
  return process;
}

struct Last {
  KernelKey place{};
  const Kernels* kernels = nullptr;
};
thread_local Last last;

Kernels load(const KernelSource& source) {
  const Driver& d = *driver();
  if (source.names.size() > most_kernels) throw InternalError("a source of too many kernels");
  Handle module = nullptr;
  check(d.load_module(&module, source.ptx), "cuModuleLoadData");
  Kernels kernels{};
  for (std::size_t i = 0; i < source.names.size(); ++i) {
    check(d.find_kernel(&kernels[i], module, source.names[i]), "cuModuleGetFunction");
  }
  return kernels;
}

}  // namespace

const Kernels& kernels_of(const KernelSource& source) {
  KernelKey place{nullptr, source.ptx};
  check(driver()->current_context(&place.first), "cuCtxGetCurrent");
  if (last.kernels != nullptr && last.place == place) return *last.kernels;
  LoadedKernels& all = loaded_kernels();
  const std::lock_guard lock(all.mutex);
  auto known = all.kernels.find(place);
  if (known == all.kernels.end()) known = all.kernels.emplace(place, load(source)).first;
  last = {place, &known->second};
  return known->second;
}

void launch(Handle kernel, const Grid& grid, const void* parameters, Handle stream,
            unsigned shared_bytes) {
  void* all[] = {const_cast<void*>(parameters)};
  check(driver()->launch(kernel, grid.x, grid.y, grid.z, grid.threads, 1, 1, shared_bytes, stream,
                         all, nullptr),
        "cuLaunchKernel");
}

}  // namespace fovea::cuda

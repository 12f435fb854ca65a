#include "cuda/kernels.h"

#include <map>
#include <mutex>
#include <utility>

#include "base/error.h"

namespace fovea::cuda {
namespace {

// CUlaunchAttribute and CUlaunchConfig of cuda.h, with one attribute.
struct LaunchAttribute {
  int id;
  int padding;
  int value[16];
};
struct LaunchConfig {
  unsigned grid[3], block[3], shared_bytes;
  Handle stream;
  const LaunchAttribute* attributes;
  unsigned count;
};
static_assert(sizeof(LaunchAttribute) == 72 && sizeof(LaunchConfig) == 56);
constexpr LaunchAttribute may_overlap{6, 0, {1}};  // ..._PROGRAMMATIC_STREAM_SERIALIZATION

}  // namespace

void launch(Handle kernel, const Grid& grid, const void* parameters, Handle stream,
            unsigned shared_bytes, bool overlaps) {
  void* all[] = {const_cast<void*>(parameters)};
  if (overlaps && driver()->launch_overlapping != nullptr) {
    const LaunchConfig config{
        {grid.x, grid.y, grid.z}, {grid.threads, 1, 1}, shared_bytes, stream, &may_overlap, 1};
    check(driver()->launch_overlapping(&config, kernel, all, nullptr), "cuLaunchKernelEx");
    return;
  }
  check(driver()->launch(kernel, grid.x, grid.y, grid.z, grid.threads, 1, 1, shared_bytes, stream,
                         all, nullptr),
        "cuLaunchKernel");
}

namespace {

using ModuleKey = std::pair<Handle, std::string>;  // context, the image itself

struct LoadedModules {
  std::mutex mutex;
  std::map<ModuleKey, Handle> modules;
};
LoadedModules& loaded_modules() {
  static LoadedModules& process = *new LoadedModules;
  return process;
}

}  // namespace

Handle module_of(std::span<const std::uint8_t> image) {
  ModuleKey place{nullptr, std::string(image.begin(), image.end())};
  check(driver()->current_context(&place.first), "cuCtxGetCurrent");
  LoadedModules& all = loaded_modules();
  const std::lock_guard lock(all.mutex);
  if (const auto known = all.modules.find(place); known != all.modules.end()) return known->second;
  Handle module = nullptr;
  // PTX ends with a zero, as the driver wants it.
  check(driver()->load_module(&module, place.second.c_str()), "cuModuleLoadData");
  all.modules.emplace(std::move(place), module);
  return module;
}

Handle kernel_of(Handle module, const std::string& name, int shared_bytes) {
  Handle kernel = nullptr;
  check(driver()->find_kernel(&kernel, module, name.c_str()), "cuModuleGetFunction");
  constexpr int without_asking = 48 * 1024;
  constexpr int max_dynamic_shared_size = 8;  // CU_FUNC_ATTRIBUTE_...
  if (shared_bytes > without_asking) {
    check(driver()->set_kernel_attribute(kernel, max_dynamic_shared_size, shared_bytes),
          "cuFuncSetAttribute");
  }
  return kernel;
}

}  // namespace fovea::cuda

#include "cuda/modules.h"

#include <map>
#include <mutex>
#include <utility>

namespace fovea::cuda {
namespace {

using ModuleKey = std::pair<Handle, std::string>;  // context, the image itself

struct LoadedModules {
  std::mutex mutex;
  std::map<ModuleKey, Handle> modules;
  ModuleStatistics statistics;
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
  ++all.statistics.modules;
  all.statistics.bytes += image.size();
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

ModuleStatistics module_statistics() {
  const std::lock_guard lock(loaded_modules().mutex);
  return loaded_modules().statistics;
}

}  // namespace fovea::cuda

#include "cuda/places.h"

#include <dlfcn.h>
#include <link.h>

#include "base/env.h"

namespace fovea::cuda {

namespace fs = std::filesystem;

std::string file_of(const void* symbol) {
  Dl_info info{};
  return dladdr(symbol, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

std::string loaded_path(void* library) {
  link_map* map = nullptr;
  return dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr ? map->l_name : "";
}

std::vector<fs::path> python_packages() {
  std::vector<fs::path> found;
  std::error_code ignored;
  const auto add_packages = [&](const fs::path& packages) {
    if (fs::is_directory(packages / "nvidia", ignored)) found.push_back(packages / "nvidia");
  };
  for (const std::string& root : python_environments()) {
    for (const auto& entry : fs::directory_iterator(fs::path(root) / "lib", ignored)) {
      if (entry.path().filename().string().starts_with("python")) {
        add_packages(entry.path() / "site-packages");
      }
    }
  }
  // libfovea.so in site-packages/fovea, where the wheel puts it.
  add_packages(fs::path(file_of(reinterpret_cast<const void*>(&python_packages)))
                   .parent_path()
                   .parent_path());
  return found;
}

}  // namespace fovea::cuda

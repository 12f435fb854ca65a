#include "cuda/libraries.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <set>

#include "base/env.h"
#include "base/error.h"
#include "cuda/driver.h"

namespace fovea::cuda {
namespace {

namespace fs = std::filesystem;

constexpr const char* main_library = "libcudnn.so.9";
constexpr const char* advice =
    "install it with 'pip install nvidia-cudnn-cu13 nvidia-cublas nvidia-cuda-nvrtc', or name its "
    "folder in FOVEA_CUDNN_DIR";

std::vector<fs::path> candidate_folders() {
  if (const auto folder = env_value(Env::CudnnDir)) {
    return {fs::path(*folder), fs::path(*folder) / "lib"};
  }
  std::vector<fs::path> folders;
  for (const fs::path& nvidia : python_packages()) folders.push_back(nvidia / "cudnn" / "lib");
  return folders;
}

// cuDNN asks for these by bare names when it first needs them, and aborts without cuBLASLt. Loaded
// from the same installation beforehand, they are found by those names.
void load_companions(const fs::path& folder) {
  const fs::path nvidia = folder.parent_path().parent_path();
  const std::vector<fs::path> places{folder, nvidia / "cu13" / "lib", nvidia / "cublas" / "lib",
                                     nvidia / "cuda_nvrtc" / "lib"};
  for (const char* name : {"libnvrtc-builtins.so.13.0", "libnvrtc.so.13", "libcublasLt.so.13"}) {
    if (dlopen(name, RTLD_LAZY | RTLD_NOLOAD) != nullptr) continue;
    for (const fs::path& place : places) {
      if (dlopen((place / name).c_str(), RTLD_LAZY | RTLD_GLOBAL) != nullptr) break;
    }
  }
}

bool companion_is_there(const char* name) { return dlopen(name, RTLD_LAZY) != nullptr; }

void open_library(CudnnLibrary& found) {
  void* const loaded = dlopen(main_library, RTLD_NOW | RTLD_NOLOAD);
  const std::vector<fs::path> folders = candidate_folders();
  std::error_code ignored;
  for (const fs::path& folder : folders) {
    const fs::path file = folder / main_library;
    if (!fs::exists(file, ignored)) continue;
    if (loaded != nullptr) {
      const bool same = fs::equivalent(file, loaded_path(loaded), ignored);
      if (!same && env_value(Env::CudnnDir)) {
        found.problem = "FOVEA_CUDNN_DIR names " + folder.string() +
                        ", but this process has loaded another cuDNN, " + loaded_path(loaded) +
                        ": two in one process would be mixed; unset it or load Fovea first";
        return;
      }
      break;
    }
    load_companions(folder);
    found.library = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (found.library == nullptr) found.problem = "cuDNN does not load: " + std::string(dlerror());
    return;
  }
  if (loaded == nullptr && env_value(Env::CudnnDir)) {
    found.problem = "no " + std::string(main_library) + " in the folder of FOVEA_CUDNN_DIR, " +
                    *env_value(Env::CudnnDir);
    return;
  }
  found.library = loaded != nullptr ? loaded : dlopen(main_library, RTLD_NOW | RTLD_GLOBAL);
  if (found.library != nullptr) load_companions(fs::path(loaded_path(found.library)).parent_path());
}

CudnnLibrary load_cudnn() {
  CudnnLibrary found;
  open_library(found);
  if (!found.problem.empty()) return found;
  if (found.library == nullptr) {
    found.problem = std::string("cuDNN is not found (") + main_library + "): " + advice;
    return found;
  }
  found.path = loaded_path(found.library);
  using Version = std::size_t (*)();
  const auto version = reinterpret_cast<Version>(dlsym(found.library, "cudnnGetVersion"));
  if (version == nullptr) {
    found.problem = found.path + " has no cudnnGetVersion";
    return found;
  }
  found.version = static_cast<int>(version());
  for (const char* name : {"libcublasLt.so.13", "libnvrtc.so.13"}) {
    if (!companion_is_there(name)) {
      found.problem = std::string("cuDNN needs ") + name + ", which is not found: " + advice;
      return found;
    }
  }
  return found;
}

}  // namespace

const CudnnLibrary& cudnn_library() {
  static const CudnnLibrary& once = *new CudnnLibrary(load_cudnn());
  return once;
}

std::string version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

std::vector<std::string> cudnn_folders_in_use() {
  std::set<std::string> folders;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        const fs::path path(info->dlpi_name);
        if (path.filename().string().starts_with("libcudnn")) {
          static_cast<std::set<std::string>*>(out)->insert(path.parent_path().string());
        }
        return 0;
      },
      &folders);
  return {folders.begin(), folders.end()};
}

void ensure_driver_or_stand_in() {
  static std::once_flag once;
  static std::string problem;
  std::call_once(once, [] {
    if (driver() != nullptr) return;
    const fs::path here =
        fs::path(file_of(reinterpret_cast<const void*>(&ensure_driver_or_stand_in))).parent_path();
    for (const fs::path& folder :
         {here / "fovea-standin", here / ".." / "fovea-standin", here / "fovea" / "standin"}) {
      if (dlopen((folder / "libcuda.so.1").c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return;
    }
    problem = driver_problem() + ", and the stand-in for it that belongs to Fovea is not beside " +
              here.string();
  });
  if (!problem.empty()) throw DeviceError(problem);
}

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

#include "attention/openmp_places.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

namespace fovea {
namespace {

// libgomp.so.1 (GNU), libomp.so.5 (LLVM), libiomp5.so (Intel), also as wheels rename them
// (libgomp-a34b3233.so.1).
bool is_runtime(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return name.starts_with("libgomp") || name.starts_with("libomp") || name.starts_with("libiomp");
}

int add_runtime(dl_phdr_info* info, std::size_t, void* paths) {
  if (info->dlpi_name != nullptr && is_runtime(info->dlpi_name)) {
    static_cast<std::vector<std::string>*>(paths)->emplace_back(info->dlpi_name);
  }
  return 0;
}

// The functions of OpenMP 4.5 that tell. A library that only begins with the same letters (libompt,
// a debugger's) lacks them.
struct Runtime {
  int (*count)() = nullptr;
  int (*processors)(int place) = nullptr;
  void (*numbers)(int place, int* into) = nullptr;

  explicit Runtime(void* library) {
    find(library, "omp_get_num_places", count);
    find(library, "omp_get_place_num_procs", processors);
    find(library, "omp_get_place_proc_ids", numbers);
  }
  bool complete() const { return count != nullptr && processors != nullptr && numbers != nullptr; }

  std::vector<Cpus> places() const {
    std::vector<Cpus> out;
    for (int place = 0, last = count(); place < last; ++place) {
      Cpus cpus(static_cast<std::size_t>(std::max(0, processors(place))));
      if (!cpus.empty()) numbers(place, cpus.data());
      std::ranges::sort(cpus);
      out.push_back(std::move(cpus));
    }
    return out;
  }

 private:
  template <class Function>
  static void find(void* library, const char* name, Function& into) {
    into = reinterpret_cast<Function>(dlsym(library, name));
  }
};

}  // namespace

std::vector<std::vector<Cpus>> openmp_places() {
  std::vector<std::string> paths;
  dl_iterate_phdr(add_runtime, &paths);
  std::vector<std::vector<Cpus>> all;
  const auto ask = [&] {
    for (const std::string& path : paths) {
      void* const library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
      if (library == nullptr) continue;
      const Runtime runtime(library);
      if (runtime.complete()) all.push_back(runtime.places());
      dlclose(library);
    }
    // One place is all that the process had: nothing can be learned from it.
    std::erase_if(all, [](const std::vector<Cpus>& places) { return places.size() < 2; });
  };
  if (paths.empty()) return all;
  // LLVM's and Intel's take whoever calls them for a thread of theirs, and bind it: not the caller.
  try {
    std::thread(ask).join();
  } catch (const std::system_error&) {
    // No thread to be had: then none has to be bound either.
  }
  return all;
}

}  // namespace fovea

#include "cuda/nvrtc.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/env.h"
#include "base/error.h"
#include "cuda/driver.h"
#include "cuda/libraries.h"

namespace fovea::cuda {
namespace {

namespace fs = std::filesystem;

using Status = int;          // nvrtcResult
using NvrtcProgram = void*;  // nvrtcProgram

// The calls by their names in libnvrtc, with their parameters.
#define FOVEA_NVRTC_CALLS(X)                                                           \
  X(version, "nvrtcVersion", int* major, int* minor)                                   \
  X(architecture_count, "nvrtcGetNumSupportedArchs", int* count)                       \
  X(architectures, "nvrtcGetSupportedArchs", int* all)                                 \
  X(create, "nvrtcCreateProgram", NvrtcProgram*, const char* source, const char* name, \
    int headers, const char* const* texts, const char* const* names)                   \
  X(destroy, "nvrtcDestroyProgram", NvrtcProgram*)                                     \
  X(compile, "nvrtcCompileProgram", NvrtcProgram, int options, const char* const* all) \
  X(cubin_size, "nvrtcGetCUBINSize", NvrtcProgram, std::size_t*)                       \
  X(cubin, "nvrtcGetCUBIN", NvrtcProgram, char*)                                       \
  X(ptx_size, "nvrtcGetPTXSize", NvrtcProgram, std::size_t*)                           \
  X(ptx, "nvrtcGetPTX", NvrtcProgram, char*)                                           \
  X(log_size, "nvrtcGetProgramLogSize", NvrtcProgram, std::size_t*)                    \
  X(log, "nvrtcGetProgramLog", NvrtcProgram, char*)

struct Functions {
#define FOVEA_NVRTC_CALL(field, name, ...) Status (*field)(__VA_ARGS__);
  FOVEA_NVRTC_CALLS(FOVEA_NVRTC_CALL)
#undef FOVEA_NVRTC_CALL
  const char* (*error_text)(Status);
};

bool find_all(void* library, Functions& f) {
  bool all = find_function(library, "nvrtcGetErrorString", f.error_text);
#define FOVEA_NVRTC_CALL(field, name, ...) all = find_function(library, name, f.field) && all;
  FOVEA_NVRTC_CALLS(FOVEA_NVRTC_CALL)
#undef FOVEA_NVRTC_CALL
  return all;
}

constexpr const char* names[] = {"libnvrtc.so.13", "libnvrtc.so.12"};

// Folders of one installation of NVIDIA's packages, whichever of them is known.
void add_installation(std::vector<fs::path>& out, const fs::path& nvidia) {
  out.push_back(nvidia / "cu13" / "lib");
  out.push_back(nvidia / "cuda_nvrtc" / "lib");
}

std::vector<fs::path> candidate_folders() {
  std::vector<fs::path> out;
  if (const auto cudnn = env_value(Env::CudnnDir)) {
    for (const fs::path& folder : {fs::path(*cudnn), fs::path(*cudnn) / "lib"}) {
      out.push_back(folder);
      add_installation(out, folder.parent_path().parent_path());
    }
  }
  for (const fs::path& nvidia : python_packages()) add_installation(out, nvidia);
  return out;
}

// It asks for its builtins by a bare name when it first compiles; loaded beforehand, they are
// found by that name.
void load_builtins(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().filename().string().starts_with("libnvrtc-builtins.so.")) {
      dlopen(entry.path().c_str(), RTLD_LAZY | RTLD_GLOBAL);
    }
  }
}

struct Loaded {
  Functions functions{};
  NvrtcLibrary library;
};

// False if this is no NVRTC that has all that is needed.
bool accept(void* handle, Loaded& loaded) {
  if (handle == nullptr || !find_all(handle, loaded.functions)) return false;
  const Functions& f = loaded.functions;
  int major = 0, minor = 0, count = 0;
  if (f.version(&major, &minor) != 0 || f.architecture_count(&count) != 0) return false;
  loaded.library.architectures.resize(static_cast<std::size_t>(std::max(count, 0)));
  if (f.architectures(loaded.library.architectures.data()) != 0) return false;
  std::ranges::sort(loaded.library.architectures);
  loaded.library.version = std::to_string(major) + "." + std::to_string(minor);
  loaded.library.path = loaded_path(handle);
  return true;
}

Loaded load() {
  Loaded loaded;
  for (const char* name : names) {
    if (accept(dlopen(name, RTLD_NOW | RTLD_NOLOAD), loaded)) return loaded;
  }
  std::error_code ignored;
  for (const fs::path& folder : candidate_folders()) {
    for (const char* name : names) {
      if (!fs::exists(folder / name, ignored)) continue;
      load_builtins(folder);
      if (accept(dlopen((folder / name).c_str(), RTLD_NOW | RTLD_LOCAL), loaded)) return loaded;
    }
  }
  for (const char* name : names) {
    if (accept(dlopen(name, RTLD_NOW | RTLD_LOCAL), loaded)) return loaded;
    const fs::path usual = fs::path("/usr/local/cuda/lib64") / name;
    if (accept(dlopen(usual.c_str(), RTLD_NOW | RTLD_LOCAL), loaded)) return loaded;
  }
  loaded.library.problem =
      "NVRTC is not found (libnvrtc.so.13 or .12): install it with 'pip install "
      "nvidia-cuda-nvrtc', or name the folder of cuDNN beside it in FOVEA_CUDNN_DIR";
  return loaded;
}

const Loaded& loaded() {
  static const Loaded& once = *new Loaded(load());
  return once;
}

void require(Status result, const char* call) {
  if (result == 0) return;
  throw DeviceError("NVRTC " + loaded().library.version + ": " + call + " gives " +
                    std::to_string(result) + " (" + loaded().functions.error_text(result) + ")");
}

struct Destroy {
  void operator()(void* program) const { loaded().functions.destroy(&program); }
};
using OwnedProgram = std::unique_ptr<void, Destroy>;

OwnedProgram create(const NvrtcRequest& request) {
  std::vector<const char*> texts, header_names;
  for (const NamedText& header : request.headers) {
    texts.push_back(header.text);
    header_names.push_back(header.name);
  }
  NvrtcProgram program = nullptr;
  require(
      loaded().functions.create(&program, request.source.c_str(), request.name.c_str(),
                                static_cast<int>(texts.size()), texts.data(), header_names.data()),
      "nvrtcCreateProgram");
  return OwnedProgram(program);
}

template <class Bytes>
Bytes read(NvrtcProgram program, Status (*size)(NvrtcProgram, std::size_t*),
           Status (*get)(NvrtcProgram, char*), const char* call) {
  std::size_t bytes = 0;
  require(size(program, &bytes), call);
  Bytes out(bytes, 0);
  if (bytes > 0) require(get(program, reinterpret_cast<char*>(out.data())), call);
  return out;
}

}  // namespace

const NvrtcLibrary& nvrtc_library() { return loaded().library; }

// From 9.0 on there is an `a` for what belongs to one capability alone; kernels get all of it. An
// older minor version of the same generation has code that runs, but without that.
std::string architecture_for(int sm, std::span<const int> known) {
  const auto best =
      std::ranges::max_element(known, {}, [&](int one) { return one <= sm ? one : 0; });
  if (best == known.end() || *best > sm) return "sm_" + std::to_string(sm);
  if (*best == sm) return "sm_" + std::to_string(sm) + (sm >= 90 ? "a" : "");
  return (*best / 10 == sm / 10 ? "sm_" : "compute_") + std::to_string(*best);
}

NvrtcResult nvrtc_compile(const NvrtcRequest& request) {
  if (!nvrtc_library().usable()) throw DeviceError(nvrtc_library().problem);
  const Functions& f = loaded().functions;
  const OwnedProgram program = create(request);
  const std::string architecture = "--gpu-architecture=" + request.architecture;
  std::vector<const char*> options{architecture.c_str()};
  for (const std::string& option : request.options) options.push_back(option.c_str());
  const Status result = f.compile(program.get(), static_cast<int>(options.size()), options.data());
  NvrtcResult out;
  out.log = read<std::string>(program.get(), f.log_size, f.log, "nvrtcGetProgramLog");
  while (!out.log.empty() && (out.log.back() == '\0' || out.log.back() == '\n')) out.log.pop_back();
  constexpr Status compilation_error = 6;
  if (result == compilation_error) return out;
  require(result, "nvrtcCompileProgram");
  const bool ptx = request.architecture.starts_with("compute_");
  using Image = std::vector<std::uint8_t>;
  out.image = ptx ? read<Image>(program.get(), f.ptx_size, f.ptx, "nvrtcGetPTX")
                  : read<Image>(program.get(), f.cubin_size, f.cubin, "nvrtcGetCUBIN");
  out.compiled = true;
  return out;
}

}  // namespace fovea::cuda

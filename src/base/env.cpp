#include "base/env.h"

#include <array>
#include <cstdlib>

#include "base/error.h"

namespace fovea {
namespace {

constexpr std::array<EnvVariable, 12> variables{{
    {Env::Engine, "FOVEA_ENGINE", "the engine to use if the caller names none"},
    {Env::CacheDir, "FOVEA_CACHE_DIR", "the folder of compiled plans; off: keep none on disk"},
    {Env::CacheLimit, "FOVEA_CACHE_LIMIT", "the most bytes in that folder: 500M, 2G; default: 1G"},
    {Env::NumThreads, "FOVEA_NUM_THREADS", "threads of the CPU engine; default: those it may use"},
    {Env::CpuIsa, "FOVEA_CPU_ISA",
     "scalar, neon, avx2, avx512 or avx512_bf16; default: the best of this machine"},
    {Env::Verbose, "FOVEA_VERBOSE", "1: a line on standard error per plan built and per call"},
    {Env::Bundle, "FOVEA_BUNDLE", "files of plans that were compiled ahead, separated by colons"},
    {Env::CudnnDir, "FOVEA_CUDNN_DIR", "the folder that all cuDNN libraries are taken from"},
    {Env::JitKeep, "FOVEA_JIT_KEEP",
     "a folder for the text of every kernel that engine jit compiles"},
    {Env::JitTier, "FOVEA_JIT_TIER",
     "general: engine jit leaves its kernels for sm_90 aside; read when plans are made"},
    {Env::Verify, "FOVEA_VERIFY",
     "first: a plan's first call is compared with the reference engine, on a sample"},
    {Env::Library, "FOVEA_LIBRARY", "the libfovea.so that language bindings load"},
}};

std::optional<std::string> value_of(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

}  // namespace

std::span<const EnvVariable> environment_variables() { return variables; }

const char* env_name(Env variable) {
  for (const EnvVariable& row : variables) {
    if (row.variable == variable) return row.name;
  }
  throw InternalError("an environment variable without a name");
}

std::optional<std::string> env_value(Env variable) { return value_of(env_name(variable)); }

std::optional<std::string> user_cache_folder() {
  // A relative one is to be ignored, says the specification of XDG.
  if (auto folder = value_of("XDG_CACHE_HOME"); folder && folder->starts_with('/')) return folder;
  if (const auto home = value_of("HOME"); home && home->starts_with('/')) return *home + "/.cache";
  return std::nullopt;
}

std::vector<std::string> python_environments() {
  std::vector<std::string> roots;
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (auto root = value_of(name)) roots.push_back(std::move(*root));
  }
  return roots;
}

}  // namespace fovea

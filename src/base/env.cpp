#include "base/env.h"

#include <array>
#include <cstdlib>

#include "base/error.h"

namespace fovea {
namespace {

constexpr std::array<EnvVariable, 8> variables{{
    {Env::Engine, "FOVEA_ENGINE", "the engine to use where the caller names none"},
    {Env::CacheDir, "FOVEA_CACHE_DIR", "the folder of compiled plans"},
    {Env::NumThreads, "FOVEA_NUM_THREADS", "threads of the CPU engine; default: those it may use"},
    {Env::CpuIsa, "FOVEA_CPU_ISA", "scalar, avx2, avx512 or avx512_bf16; default: the best of this machine"},
    {Env::Verbose, "FOVEA_VERBOSE", "1: a line on standard error per plan built and per call"},
    {Env::Bundle, "FOVEA_BUNDLE", "a file of plans that were compiled elsewhere"},
    {Env::CudnnDir, "FOVEA_CUDNN_DIR", "the folder that all cuDNN libraries are taken from"},
    {Env::Library, "FOVEA_LIBRARY", "the libfovea.so that language bindings load"},
}};

}  // namespace

std::span<const EnvVariable> environment_variables() { return variables; }

const char* env_name(Env variable) {
  for (const EnvVariable& row : variables) {
    if (row.variable == variable) return row.name;
  }
  throw InternalError("an environment variable without a name");
}

std::optional<std::string> env_value(Env variable) {
  const char* const value = std::getenv(env_name(variable));
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

}  // namespace fovea

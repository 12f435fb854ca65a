// The environment variables that the library reads, in one table, which `fovea doctor` prints. No
// other file of the library calls getenv.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace fovea {

enum class Env : std::uint8_t {
  Engine,
  CacheDir,
  CacheLimit,
  NumThreads,
  CpuIsa,
  Verbose,
  Bundle,
  CudnnDir,
  JitKeep,
  JitTier,
  Verify,
  Library,
};

struct EnvVariable {
  Env variable;
  const char* name;     // FOVEA_ENGINE ...
  const char* meaning;  // one line for people
};

std::span<const EnvVariable> environment_variables();
const char* env_name(Env variable);

// Its value; nothing if it is unset or empty.
std::optional<std::string> env_value(Env variable);

// Where programs of this user keep what they can make again: XDG_CACHE_HOME, else ~/.cache. Nothing
// if neither is known.
std::optional<std::string> user_cache_folder();

// The roots of the Python environments that are active: VIRTUAL_ENV, CONDA_PREFIX.
std::vector<std::string> python_environments();

}  // namespace fovea

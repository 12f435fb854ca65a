#include "tests/jit_host/host_gpu.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "base/error.h"
#include "engines/jit/compiler.h"
#include "tests/jit_host/compile.h"

namespace fovea::on_host {
namespace {

class HostCompiler : public jit::Compiler {
 public:
  std::string problem() const override { return ""; }
  std::string target(const Device&) const override { return "host"; }
  jit::Image compile(const jit::Unit& unit, const std::string&) const override try {
    const std::string object = compile_on_host(unit.source);
    return {{object.begin(), object.end()}, ""};
  } catch (const std::runtime_error& error) {
    throw InternalError(unit.name + ": " + error.what());
  }
};

}  // namespace

void use_host_gpu() {
  ::setenv("FOVEA_CACHE_DIR", "off", 1);  // compile_on_host has a cache of its own
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "host-gpu";
  if (dlopen((folder / "libcuda.so.1").c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    throw std::runtime_error(dlerror());
  }
  static const HostCompiler& compiler = *new HostCompiler;
  jit::replace_compiler(&compiler);
}

}  // namespace fovea::on_host

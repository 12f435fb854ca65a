#include "tests/engines/jit/host_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace fovea::test {

namespace fs = std::filesystem;

std::string HostLibrary::build(const std::string& text) {
  std::string folder = (fs::temp_directory_path() / "fovea-rendered-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return "no folder " + folder;
  const std::string source = folder + "/code.cpp", object = folder + "/code.so",
                    log = folder + "/log", root = FOVEA_SOURCE_DIR;
  std::ofstream(source) << text;
  const std::string command = std::string(FOVEA_HOST_COMPILER) +
                              " -std=c++17 -O0 -shared -fPIC -w -ffp-contract=off -iquote '" +
                              root + "/src' -iquote '" + root +
                              "' -DFOVEA_HOST_PRIMITIVES='\"tests/engines/jit/host_numbers.h\"' '" +
                              source + "' -o '" + object + "' 2> '" + log + "'";
  if (std::system(command.c_str()) != 0) {
    std::ostringstream said;
    said << std::ifstream(log).rdbuf();
    return said.str().substr(0, 4000) + "\nin " + source;
  }
  library_ = dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) return dlerror();
  fs::remove_all(folder);
  return {};
}

HostLibrary::~HostLibrary() {
  if (library_ != nullptr) dlclose(library_);
}

void* HostLibrary::address(const std::string& name) const { return dlsym(library_, name.c_str()); }

}  // namespace fovea::test

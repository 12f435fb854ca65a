#include "tests/jit_host/module.h"

#include <dlfcn.h>
#include <elf.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <stdexcept>

namespace fovea::on_host {
namespace {

#if defined(__x86_64__)
constexpr int this_machine = EM_X86_64;
#elif defined(__aarch64__)
constexpr int this_machine = EM_AARCH64;
#else
constexpr int this_machine = EM_NONE;
#endif

// A file of its own: dlopen takes two images of one name for the same.
std::filesystem::path write_image(std::string_view image) {
  std::string name = (std::filesystem::temp_directory_path() / "fovea-kernel-XXXXXX").string();
  const int file = mkstemp(name.data());
  if (file < 0) throw std::runtime_error("no file for a kernel in " + name);
  while (!image.empty()) {
    const ssize_t done = ::write(file, image.data(), image.size());
    if (done <= 0) break;
    image.remove_prefix(static_cast<std::size_t>(done));
  }
  ::close(file);
  if (!image.empty()) throw std::runtime_error("no room for a kernel in " + name);
  return name;
}

}  // namespace

Module::Module(std::string_view image) {
  const std::filesystem::path file = write_image(image);
  library_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  const char* const problem = library_ == nullptr ? dlerror() : nullptr;
  ::unlink(file.c_str());
  if (problem != nullptr) throw std::runtime_error(problem);
  using Set = void (*)(const Machine*);
  const auto set = reinterpret_cast<Set>(dlsym(library_, "fovea_set_machine"));
  if (set == nullptr) throw std::runtime_error("a shared object that is no kernel");
  set(&Block::machine());
}

Kernel Module::find(const std::string& name) const {
  return reinterpret_cast<Kernel>(dlsym(library_, ("fovea_run_" + name).c_str()));
}

// Linkers put the table of sections last.
std::size_t image_bytes(const void* image) {
  Elf64_Ehdr header;
  if (std::memcmp(image, ELFMAG, SELFMAG) != 0) return 0;
  std::memcpy(&header, image, sizeof header);
  if (header.e_machine != this_machine || header.e_type != ET_DYN) return 0;
  return header.e_shoff + std::size_t{header.e_shnum} * header.e_shentsize;
}

}  // namespace fovea::on_host

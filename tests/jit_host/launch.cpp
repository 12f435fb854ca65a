#include "tests/jit_host/launch.h"

#include <dlfcn.h>
#include <elf.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "tests/jit_host/shared_memory.h"

namespace fovea::on_host {
namespace {

std::string text_of(const ThreadIndex& place) {
  return "block (" + std::to_string(place.block_x) + ", " + std::to_string(place.block_y) + ", " +
         std::to_string(place.block_z) + ")";
}

std::vector<std::uint32_t> shuffled_numbers(std::uint32_t count, test::Random& random) {
  std::vector<std::uint32_t> all(count);
  std::iota(all.begin(), all.end(), 0u);
  for (std::uint32_t i = count; i > 1; --i) std::swap(all[i - 1], all[random.below(i)]);
  return all;
}

}  // namespace

std::string launch(Kernel kernel, void** parameters, const Launch& grid) {
  static std::mutex mutex;
  static Block& block = *new Block;
  static std::uint64_t number = 0;
  const std::lock_guard lock(mutex);
  if (grid.threads == 0 || grid.threads > Stacks::most || grid.threads % lanes != 0) {
    return "a launch of " + std::to_string(grid.threads) + " threads";
  }
  const std::uint64_t seed = test::test_seed();
  test::Random random(seed, number++);
  block.memory().begin_launch(grid.shared_bytes);
  for (const std::uint32_t i : shuffled_numbers(grid.x * grid.y * grid.z, random)) {
    const ThreadIndex place{0,
                            static_cast<int>(grid.threads),
                            static_cast<int>(i % grid.x),
                            static_cast<int>(i / grid.x % grid.y),
                            static_cast<int>(i / grid.x / grid.y),
                            static_cast<int>(grid.x)};
    try {
      block.run(kernel, parameters, place, random);
    } catch (const Mistake& mistake) {
      return text_of(place) + ", FOVEA_TEST_SEED=" + std::to_string(seed) + ": " + mistake.what();
    }
  }
  return "";
}

namespace {

#if defined(__x86_64__)
constexpr int this_machine = EM_X86_64;
#elif defined(__aarch64__)
constexpr int this_machine = EM_AARCH64;
#else
constexpr int this_machine = EM_NONE;
#endif

// Each image needs a file name of its own: dlopen loads the same name only once.
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

// The table of sections is the last part of what linkers write.
std::size_t image_bytes(const void* image) {
  Elf64_Ehdr header;
  if (std::memcmp(image, ELFMAG, SELFMAG) != 0) return 0;
  std::memcpy(&header, image, sizeof header);
  if (header.e_machine != this_machine || header.e_type != ET_DYN) return 0;
  return header.e_shoff + std::size_t{header.e_shnum} * header.e_shentsize;
}

}  // namespace fovea::on_host

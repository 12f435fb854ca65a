#include "tests/jit_host/launch.h"

#include <mutex>
#include <numeric>
#include <utility>

#include "tests/jit_host/mistake.h"

namespace fovea::on_host {
namespace {

std::string text_of(const Place& place) {
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
    const Place place{0,
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

}  // namespace fovea::on_host

#include "bench/gpu/events.h"

#include <dlfcn.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "cuda/driver.h"

namespace fovea::bench {
namespace {

constexpr std::size_t million = std::size_t{1} << 20;

template <class F>
F* find(const char* name) {
  return reinterpret_cast<F*>(dlsym(cuda::driver()->library, name));
}

void check(int result, const char* call) { cuda::check(result, call); }

}  // namespace

void start_device() {
  if (cuda::driver() == nullptr) {
    std::fprintf(stderr, "%s\n", cuda::driver_problem().c_str());
    std::exit(1);
  }
  static cuda::OnDevice& first = *new cuda::OnDevice(0);
  (void)first;
}

void wait() {
  static auto* const synchronize = find<int()>("cuCtxSynchronize");
  check(synchronize(), "cuCtxSynchronize");
}

double median(std::vector<double> x) {
  std::ranges::sort(x);
  return x[x.size() / 2];
}

double time_ms(const std::function<void()>& enqueue, int calls) {
  static auto* const create = find<int(void**, unsigned)>("cuEventCreate");
  static auto* const record = find<int(void*, void*)>("cuEventRecord");
  static auto* const finish = find<int(void*)>("cuEventSynchronize");
  static auto* const elapsed = find<int(float*, void*, void*)>("cuEventElapsedTime");
  static void *start = nullptr, *stop = nullptr;
  if (start == nullptr) {
    check(create(&start, 0), "cuEventCreate");
    check(create(&stop, 0), "cuEventCreate");
  }
  check(record(start, nullptr), "cuEventRecord");
  for (int i = 0; i < calls; ++i) enqueue();
  check(record(stop, nullptr), "cuEventRecord");
  check(finish(stop), "cuEventSynchronize");
  float ms = 0;
  check(elapsed(&ms, start, stop), "cuEventElapsedTime");
  return ms / calls;
}

std::vector<double> host_us(const std::vector<std::function<void()>>& calls) {
  using Clock = std::chrono::steady_clock;
  constexpr int repeated = 100, rounds = 60;
  std::vector<std::vector<double>> times(calls.size());
  for (int i = 0; i < rounds; ++i) {
    for (std::size_t side = 0; side < calls.size(); ++side) {
      const auto start = Clock::now();
      for (int j = 0; j < repeated; ++j) calls[side]();
      const std::chrono::duration<double, std::micro> took = Clock::now() - start;
      wait();
      times[side].push_back(took.count() / repeated);
    }
  }
  std::vector<double> medians;
  for (const std::vector<double>& one : times) medians.push_back(median(one));
  return medians;
}

DeviceMemory::DeviceMemory(std::size_t bytes) {
  check(cuda::driver()->allocate(&address_, bytes), "cuMemAlloc");
}

DeviceMemory::~DeviceMemory() { cuda::driver()->release(address_); }

void DeviceMemory::send(const void* from, std::size_t bytes, std::size_t at) const {
  check(cuda::driver()->to_device(address_ + at, from, bytes), "cuMemcpyHtoD");
}

void DeviceMemory::fetch(void* to, std::size_t bytes, std::size_t at) const {
  static auto* const copy = find<int(void*, std::uint64_t, std::size_t)>("cuMemcpyDtoH_v2");
  check(copy(to, address_ + at, bytes), "cuMemcpyDtoH");
}

double copy_bandwidth() {
  static auto* const copy =
      find<int(std::uint64_t, std::uint64_t, std::size_t, void*)>("cuMemcpyDtoDAsync_v2");
  constexpr std::size_t bytes = std::size_t{1} << 30;
  const DeviceMemory from(bytes), to(bytes);
  const auto address = [](const DeviceMemory& block) {
    return reinterpret_cast<std::uint64_t>(block.data());
  };
  const auto enqueue = [&] {
    check(copy(address(to), address(from), bytes, nullptr), "cuMemcpyDtoDAsync");
  };
  time_ms(enqueue);
  std::vector<double> times;
  for (int i = 0; i < 9; ++i) times.push_back(time_ms(enqueue));
  return 2.0 * static_cast<double>(bytes) / (median(times) / 1000);
}

Device16::Device16(std::size_t count, unsigned seed) : DeviceMemory(count * 2), count_(count) {
  std::vector<std::uint16_t> values(million);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (std::uint16_t& x : values) {
    x = seed == 0 ? 0
                  : static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(normal(random)) >> 16);
  }
  for (std::size_t at = 0; at < count; at += million) {
    const std::size_t n = std::min(million, count - at);
    check(cuda::driver()->to_device(reinterpret_cast<cuda::Address>(data()) + at * 2, values.data(),
                                    n * 2),
          "cuMemcpyHtoD");
  }
}

void Device16::send(const std::vector<std::uint16_t>& bits) {
  DeviceMemory::send(bits.data(), bits.size() * 2);
}

std::vector<float> Device16::fetch() const {
  std::vector<std::uint16_t> values(std::min(million, count_));
  DeviceMemory::fetch(values.data(), values.size() * 2);
  std::vector<float> out;
  for (const std::uint16_t x : values) {
    out.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16));
  }
  return out;
}

void DeviceF32::send(const std::vector<float>& values) {
  DeviceMemory::send(values.data(), values.size() * 4);
}

std::vector<float> DeviceF32::fetch() const {
  std::vector<float> values(count_);
  DeviceMemory::fetch(values.data(), values.size() * 4);
  return values;
}

DeviceWord::DeviceWord(std::uint64_t value) : DeviceMemory(sizeof value) {
  send(&value, sizeof value);
}

}  // namespace fovea::bench

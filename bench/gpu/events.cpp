#include "bench/gpu/events.h"

#include <dlfcn.h>

#include <algorithm>
#include <bit>
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

double time_ms(const std::function<void()>& enqueue) {
  static auto* const create = find<int(void**, unsigned)>("cuEventCreate");
  static auto* const record = find<int(void*, void*)>("cuEventRecord");
  static auto* const finish = find<int(void*)>("cuEventSynchronize");
  static auto* const elapsed = find<int(float*, void*, void*)>("cuEventElapsedTime");
  static void *start = nullptr, *stop = nullptr;
  if (start == nullptr) {
    check(create(&start, 0), "cuEventCreate");
    check(create(&stop, 0), "cuEventCreate");
  }
  constexpr int calls = 4;  // back to back: the host is ahead
  check(record(start, nullptr), "cuEventRecord");
  for (int i = 0; i < calls; ++i) enqueue();
  check(record(stop, nullptr), "cuEventRecord");
  check(finish(stop), "cuEventSynchronize");
  float ms = 0;
  check(elapsed(&ms, start, stop), "cuEventElapsedTime");
  return ms / calls;
}

Block::Block(std::size_t bytes) { check(cuda::driver()->allocate(&address_, bytes), "cuMemAlloc"); }

Block::~Block() { cuda::driver()->release(address_); }

Device16::Device16(std::size_t count, unsigned seed) : Block(count * 2), count_(count) {
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

namespace {

void send_to(const Block& block, const void* from, std::size_t bytes) {
  check(cuda::driver()->to_device(reinterpret_cast<cuda::Address>(block.data()), from, bytes),
        "cuMemcpyHtoD");
}

void fetch_from(const Block& block, void* to, std::size_t bytes) {
  static auto* const copy = find<int(void*, std::uint64_t, std::size_t)>("cuMemcpyDtoH_v2");
  check(copy(to, reinterpret_cast<std::uint64_t>(block.data()), bytes), "cuMemcpyDtoH");
}

}  // namespace

void Device16::send(const std::vector<std::uint16_t>& bits) {
  send_to(*this, bits.data(), bits.size() * 2);
}

std::vector<float> Device16::fetch() const {
  std::vector<std::uint16_t> values(std::min(million, count_));
  fetch_from(*this, values.data(), values.size() * 2);
  std::vector<float> out;
  for (const std::uint16_t x : values) {
    out.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16));
  }
  return out;
}

void DeviceF32::send(const std::vector<float>& values) {
  send_to(*this, values.data(), values.size() * 4);
}

std::vector<float> DeviceF32::fetch() const {
  std::vector<float> values(count_);
  fetch_from(*this, values.data(), values.size() * 4);
  return values;
}

DeviceWord::DeviceWord(std::uint64_t value) : Block(sizeof value) {
  send_to(*this, &value, sizeof value);
}

}  // namespace fovea::bench

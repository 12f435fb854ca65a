// Device memory and time for benchmarks on a GPU, through the driver.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace fovea::bench {

void start_device();  // makes the first GPU current; exits with a message if there is none
void wait();
double median(std::vector<double> x);
// By events on the default stream; of one call, if several are enqueued back to back.
double time_ms(const std::function<void()>& enqueue, int calls = 4);
// Microseconds of the host for a call of each, in turns: medians. Few calls at a time, so that the
// queue never fills up and the host never waits for the GPU.
std::vector<double> host_us(const std::vector<std::function<void()>>& calls);
// Bytes read and written per second by copies of a gigabyte within the GPU's memory.
double copy_bandwidth();

class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  void* data() const { return reinterpret_cast<void*>(address_); }
  void send(const void* from, std::size_t bytes, std::size_t at = 0) const;
  void fetch(void* to, std::size_t bytes, std::size_t at = 0) const;

 private:
  std::uint64_t address_ = 0;
};

// bf16 on the device: normal numbers of a seed (a million, repeated), or zeros for seed 0.
class Device16 : public DeviceMemory {
 public:
  Device16(std::size_t count, unsigned seed);
  void send(const std::vector<std::uint16_t>& bits);
  std::vector<float> fetch() const;  // the first million

 private:
  std::size_t count_;
};

class DeviceF32 : public DeviceMemory {
 public:
  explicit DeviceF32(std::size_t count) : DeviceMemory(count * 4), count_(count) {}
  void send(const std::vector<float>& values);
  std::vector<float> fetch() const;

 private:
  std::size_t count_;
};

// One number of 64 bits.
class DeviceWord : public DeviceMemory {
 public:
  explicit DeviceWord(std::uint64_t value);
};

}  // namespace fovea::bench

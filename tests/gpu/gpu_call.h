// One forward of a problem line on a GPU, through the C interface, with streams and CUDA graphs of
// its own. Used by tests/gpu.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cuda/driver.h"
#include "fovea/fovea.h"

namespace fovea::gpu_tests {

bool has_gpu();  // FOVEA_TEST_DEVICE is set
#define NEED_GPU() \
  if (!has_gpu()) GTEST_SKIP() << "no GPU: FOVEA_TEST_DEVICE is not set"

// Makes the GPU current; nothing if the tests are tried on the host.
class OnGpu {
 public:
  OnGpu();

 private:
  std::optional<cuda::OnDevice> here_;
};

class CapturedGraph {
 public:
  explicit CapturedGraph(void* executable) : executable_(executable) {}
  void launch(void* stream) const;

 private:
  void* executable_;
};

class Stream {
 public:
  Stream();
  void* get() const { return stream_; }
  void wait() const;
  CapturedGraph capture(const std::function<void()>& enqueue) const;

 private:
  void* stream_ = nullptr;
};

class GpuMemory {
 public:
  explicit GpuMemory(std::size_t bytes);
  ~GpuMemory();
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;
  void* data() const { return reinterpret_cast<void*>(address_); }
  std::size_t bytes() const { return bytes_; }
  void send(const void* from) const;
  void fetch(void* to) const;

 private:
  cuda::Address address_ = 0;
  std::size_t bytes_;
};

class GpuCall {
 public:
  GpuCall(const std::string& line, unsigned seed);  // the plan is made, inputs are filled
  ~GpuCall();
  GpuCall(const GpuCall&) = delete;
  GpuCall& operator=(const GpuCall&) = delete;

  void fill_inputs(unsigned seed);
  void clear_output();
  void enqueue(void* stream);
  std::vector<std::uint16_t> output() const;  // bits of o
  std::vector<std::uint16_t> run_once() const;
  void drop_plan();
  void move_starts(const std::vector<std::int32_t>& starts);  // as many, of a packed call

 private:
  void bind_starts(const std::string& line);

  fovea_problem problem_ = nullptr;
  fovea_plan plan_ = nullptr;
  std::unique_ptr<GpuMemory> q_, k_, v_, o_, lse_, starts_, workspace_;
  fovea_bindings bindings_{};
};

}  // namespace fovea::gpu_tests

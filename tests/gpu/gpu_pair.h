// A problem line on a GPU, forward and backward, with its inputs and outputs in place: enqueued on
// any stream, also while a CUDA graph is captured, again and again with new data. FOVEA_TEST_DEVICE
// names the device; without it every test of this folder is skipped.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/check/call.h"
#include "cuda/driver.h"

namespace fovea::gpu_tests {

#define NEED_GPU()                                 \
  if (std::getenv("FOVEA_TEST_DEVICE") == nullptr) \
  GTEST_SKIP() << "no GPU: FOVEA_TEST_DEVICE is not set"

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

// jit, or what FOVEA_TEST_ENGINE names: with FOVEA_TEST_DEVICE=cpu and engine cpu the tests can be
// tried if there is no GPU, streams and graphs aside.
std::string tested_engine();
std::string tested_device();
bool has_engine(const std::string& name);
#define NEED_ENGINE(name) \
  NEED_GPU();             \
  if (!has_engine(name)) GTEST_SKIP() << "built without engine " << name
#define NEED_JIT() NEED_ENGINE(tested_engine())

#define NEED_STREAMS(engine) \
  NEED_ENGINE(engine);       \
  if (!tested_device().starts_with("cuda")) GTEST_SKIP() << "streams are a GPU's"

class GpuPair {
 public:
  // The plans are made, inputs are in place; a backward reads what its forward wrote.
  explicit GpuPair(cli::Workload workload, const std::string& engine = tested_engine());
  explicit GpuPair(const std::string& line, const std::string& engine = tested_engine());

  void enqueue(void* stream);
  void refill(const cli::Workload& other);  // of the same shape; also lengths, starts and the seed
  void poison();                            // what it writes
  std::vector<cli::NamedArray> outputs();   // fetched; all that was enqueued must be done
  std::vector<cli::NamedArray> run_once();  // poisons, runs on the default stream, waits
  std::vector<std::string> complaints() const;
  void drop_plans();
  const cli::Workload& workload() const { return workload_; }

 private:
  struct Direction {
    std::optional<Plan> plan;
    std::unique_ptr<cli::CallMemory> memory;
  };
  Direction make(const Problem& problem, bool backward);
  void send_seed(std::uint64_t seed);
  void wait();

  cli::Workload workload_;
  std::string engine_;
  cli::Gpu* gpu_;  // null: the host
  cli::Gpu::Block seed_;
  Direction forward_, backward_;
};

const cli::Array& named(const std::vector<cli::NamedArray>& arrays, const std::string& name);

// Those whose bytes differ, by name; "" if all are the same.
std::string different(const std::vector<cli::NamedArray>& a, const std::vector<cli::NamedArray>& b);

// Against the reference engine: what is beyond its limits.
std::string beyond_limits(const cli::Workload& workload, std::vector<cli::NamedArray> outputs);

}  // namespace fovea::gpu_tests

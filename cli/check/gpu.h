// Memory of a GPU, through the driver, loaded when it is first asked for: tensors of `run`, `bench`
// and the tests on device cuda:N. The program sees include/ only, so it has its own few calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace fovea::cli {

class Gpu {
 public:
  // The GPU of `cuda:N`; null for any other device. Throws std::runtime_error if there is none.
  static Gpu* find(const std::string& device);

  using Block = std::shared_ptr<void>;  // frees itself
  Block allocate(std::size_t bytes);
  void send(void* to, const void* from, std::size_t bytes);
  void fetch(void* to, const void* from, std::size_t bytes);
  void wait();  // for all that was enqueued

 private:
  explicit Gpu(int ordinal);
  void check(int result, const char* call) const;

  struct Driver;
  std::shared_ptr<Driver> driver_;
};

}  // namespace fovea::cli

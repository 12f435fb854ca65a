// Memory that one call on the CPU borrows. XLA has no scratch memory for its host platform, so a
// few blocks are kept between calls: fresh pages cost more than small calls do. Used by
// handlers.cpp.
#pragma once

#include <cstddef>

namespace fovea_jax {

class HostWorkspace {
 public:
  explicit HostWorkspace(std::size_t bytes);  // throws std::bad_alloc
  ~HostWorkspace();
  HostWorkspace(const HostWorkspace&) = delete;
  HostWorkspace& operator=(const HostWorkspace&) = delete;

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace fovea_jax

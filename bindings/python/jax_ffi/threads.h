// XLA's thread pool as an executor of Fovea's CPU engine.
// Called by handlers.cpp for the host platform; lives as long as one call.
#pragma once

#include <fovea/fovea.h>

#include "xla/ffi/api/ffi.h"

namespace fovea_jax {

class Threads {
 public:
  explicit Threads(xla::ffi::ThreadPool& pool);
  const fovea_executor* executor() const { return &executor_; }

 private:
  static void run(void* self, std::size_t count, void (*task)(void*, std::size_t), void* context);

  xla::ffi::ThreadPool& pool_;
  fovea_executor executor_{};
};

}  // namespace fovea_jax

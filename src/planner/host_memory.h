// Memory that a call has bound, readable on the host: where it lies if that is the host, else a
// copy.
#pragma once

#include <cstddef>
#include <vector>

#include "attention/device.h"

namespace fovea {

class HostMemory {
 public:
  // On a GPU: waits for the stream first.
  HostMemory(DeviceKind device, void* stream);

  // `bytes` bytes from there on; null stays null. Lives as long as this object.
  void* fetch(const void* from, std::size_t bytes);

 private:
  DeviceKind device_;
  std::vector<std::vector<std::byte>> copies_;
};

}  // namespace fovea

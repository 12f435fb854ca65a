#include "planner/host_memory.h"

#include <dlfcn.h>

#include "base/error.h"
#include "cuda/driver.h"

namespace fovea {
namespace {

template <class Function>
Function driver_call(const char* name) {
  const cuda::Driver* const driver = cuda::driver();
  void* const found = driver == nullptr ? nullptr : dlsym(driver->library, name);
  if (found == nullptr) throw DeviceError(std::string("the CUDA driver has no ") + name);
  return reinterpret_cast<Function>(found);
}

}  // namespace

HostMemory::HostMemory(DeviceKind device, void* stream) : device_(device) {
  if (device_ == DeviceKind::Cpu) return;
  using Synchronize = cuda::Result (*)(cuda::Handle stream);
  cuda::check(driver_call<Synchronize>("cuStreamSynchronize")(stream), "cuStreamSynchronize");
}

void* HostMemory::fetch(const void* from, std::size_t bytes) {
  if (from == nullptr || device_ == DeviceKind::Cpu) return const_cast<void*>(from);
  using Copy = cuda::Result (*)(void* to, cuda::Address from, std::size_t bytes);
  std::vector<std::byte>& copy = copies_.emplace_back(bytes);
  const auto address = reinterpret_cast<cuda::Address>(from);
  cuda::check(driver_call<Copy>("cuMemcpyDtoH_v2")(copy.data(), address, bytes), "cuMemcpyDtoH");
  return copy.data();
}

}  // namespace fovea

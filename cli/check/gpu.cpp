#include "cli/check/gpu.h"

#include <dlfcn.h>

#include <map>
#include <mutex>
#include <stdexcept>

namespace fovea::cli {

// Signatures follow cuda.h.
struct Gpu::Driver {
  int (*init)(unsigned);
  int (*get)(int*, int);
  int (*retain)(void**, int);
  int (*set_current)(void*);
  int (*allocate)(std::uint64_t*, std::size_t);
  int (*release)(std::uint64_t);
  int (*to_device)(std::uint64_t, const void*, std::size_t);
  int (*to_host)(void*, std::uint64_t, std::size_t);
  int (*synchronize)();
};

namespace {

template <class F>
void look_up(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  if (function == nullptr) throw std::runtime_error(std::string("the driver has no ") + name);
}

}  // namespace

Gpu::Gpu(int ordinal) : driver_(std::make_shared<Driver>()) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) throw std::runtime_error("no NVIDIA driver: libcuda.so.1 is not here");
  Driver& d = *driver_;
  look_up(library, "cuInit", d.init);
  look_up(library, "cuDeviceGet", d.get);
  look_up(library, "cuDevicePrimaryCtxRetain", d.retain);
  look_up(library, "cuCtxSetCurrent", d.set_current);
  look_up(library, "cuMemAlloc_v2", d.allocate);
  look_up(library, "cuMemFree_v2", d.release);
  look_up(library, "cuMemcpyHtoD_v2", d.to_device);
  look_up(library, "cuMemcpyDtoH_v2", d.to_host);
  look_up(library, "cuCtxSynchronize", d.synchronize);
  check(d.init(0), "cuInit");
  int device = 0;
  check(d.get(&device, ordinal), "cuDeviceGet");
  void* context = nullptr;
  check(d.retain(&context, device), "cuDevicePrimaryCtxRetain");
  check(d.set_current(context), "cuCtxSetCurrent");
}

Gpu* Gpu::find(const std::string& device) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<Gpu>>& known =
      *new std::map<std::string, std::unique_ptr<Gpu>>;
  if (!device.starts_with("cuda")) return nullptr;
  const std::lock_guard lock(mutex);
  auto& gpu = known[device];
  if (!gpu) gpu.reset(new Gpu(device.size() > 5 ? std::stoi(device.substr(5)) : 0));
  return gpu.get();
}

void Gpu::check(int result, const char* call) const {
  if (result == 0) return;
  throw std::runtime_error(std::string("CUDA driver: ") + call + " gives " +
                           std::to_string(result));
}

Gpu::Block Gpu::allocate(std::size_t bytes) {
  std::uint64_t address = 0;
  check(driver_->allocate(&address, bytes), "cuMemAlloc");
  return Block(reinterpret_cast<void*>(address), [driver = driver_](void* block) {
    driver->release(reinterpret_cast<std::uint64_t>(block));
  });
}

void Gpu::send(void* to, const void* from, std::size_t bytes) {
  check(driver_->to_device(reinterpret_cast<std::uint64_t>(to), from, bytes), "cuMemcpyHtoD");
}

void Gpu::fetch(void* to, const void* from, std::size_t bytes) {
  check(driver_->to_host(to, reinterpret_cast<std::uint64_t>(from), bytes), "cuMemcpyDtoH");
}

void Gpu::wait() { check(driver_->synchronize(), "cuCtxSynchronize"); }

}  // namespace fovea::cli

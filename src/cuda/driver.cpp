#include "cuda/driver.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstring>

#include "base/error.h"

namespace fovea::cuda {
namespace {

struct Loaded {
  Driver driver{};
  std::string problem;
};

template <class F>
bool find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  return function != nullptr;
}

bool find_all(void* library, Driver& d) {
  find(library, "cuTensorMapEncodeTiled", d.encode_tensor_map);
  find(library, "cuLaunchKernelEx", d.launch_overlapping);
  return find(library, "cuInit", d.init) && find(library, "cuDriverGetVersion", d.driver_version) &&
         find(library, "cuGetErrorName", d.error_name) &&
         find(library, "cuDeviceGetCount", d.device_count) &&
         find(library, "cuDeviceGet", d.device_get) &&
         find(library, "cuDeviceGetName", d.device_name) &&
         find(library, "cuDeviceGetAttribute", d.device_attribute) &&
         find(library, "cuDeviceTotalMem_v2", d.device_memory) &&
         find(library, "cuDevicePrimaryCtxRetain", d.primary_context) &&
         find(library, "cuCtxGetCurrent", d.current_context) &&
         find(library, "cuCtxPushCurrent_v2", d.push_context) &&
         find(library, "cuCtxPopCurrent_v2", d.pop_context) &&
         find(library, "cuCtxGetDevice", d.context_device) &&
         find(library, "cuStreamIsCapturing", d.is_capturing) &&
         find(library, "cuMemAlloc_v2", d.allocate) && find(library, "cuMemFree_v2", d.release) &&
         find(library, "cuMemcpyHtoD_v2", d.to_device) &&
         find(library, "cuMemcpyHtoDAsync_v2", d.to_device_async) &&
         find(library, "cuMemsetD8Async", d.set_bytes_async) &&
         find(library, "cuMemsetD32Async", d.set_words_async) &&
         find(library, "cuMemsetD2D8Async", d.set_rows_async) &&
         find(library, "cuModuleLoadData", d.load_module) &&
         find(library, "cuModuleGetFunction", d.find_kernel) &&
         find(library, "cuFuncSetAttribute", d.set_kernel_attribute) &&
         find(library, "cuLaunchKernel", d.launch);
}

// The library stays loaded for ever: other libraries of the process hold pointers into it.
Loaded load() {
  Loaded loaded;
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    loaded.problem = "no NVIDIA driver: libcuda.so.1 cannot be loaded";
    return loaded;
  }
  if (!find_all(library, loaded.driver)) {
    loaded.problem = "the NVIDIA driver is too old, or libcuda.so.1 is a stand-in";
    return loaded;
  }
  if (const Result result = loaded.driver.init(0); result != 0) {
    loaded.problem = "the NVIDIA driver does not start: cuInit gives " + std::to_string(result);
    return loaded;
  }
  int version = 0;
  if (loaded.driver.driver_version(&version) != 0 || version < 12030) {
    loaded.driver.launch_overlapping = nullptr;
  }
  loaded.driver.library = library;
  return loaded;
}

const Loaded& loaded() {
  static const Loaded& once = *new Loaded(load());
  return once;
}

Handle retain_primary(int ordinal) {
  int device = -1;
  check(driver()->device_get(&device, ordinal), "cuDeviceGet");
  Handle context = nullptr;
  check(driver()->primary_context(&context, device), "cuDevicePrimaryCtxRetain");
  return context;
}

// Kept for the life of the process: to retain and release one at each call costs more than a small
// call's launch. Of two threads that come first both retain it, which is harmless.
Handle primary_of(int ordinal) {
  static std::array<std::atomic<Handle>, 64> kept{};
  const auto at = static_cast<std::size_t>(ordinal);
  if (at >= kept.size()) return retain_primary(ordinal);
  Handle context = kept[at].load(std::memory_order_acquire);
  if (context == nullptr) {
    context = retain_primary(ordinal);
    kept[at].store(context, std::memory_order_release);
  }
  return context;
}

}  // namespace

const Driver* driver() { return loaded().problem.empty() ? &loaded().driver : nullptr; }

const std::string& driver_problem() { return loaded().problem; }

void check(Result result, const char* call) {
  if (result == 0) return;
  const char* name = "unknown error";
  if (driver() != nullptr) driver()->error_name(result, &name);
  throw DeviceError(std::string("CUDA driver: ") + call + " gives " + std::to_string(result) +
                    " (" + name + ")");
}

bool is_capturing(Handle stream) {
  int status = 0;
  return driver() != nullptr && driver()->is_capturing(stream, &status) == 0 && status != 0;
}

OnDevice::OnDevice(int ordinal) {
  const Driver& d = *driver();
  Handle current = nullptr;
  check(d.current_context(&current), "cuCtxGetCurrent");
  int device = -1;
  if (current != nullptr && d.context_device(&device) == 0 && device == ordinal) return;
  check(d.push_context(primary_of(ordinal)), "cuCtxPushCurrent");
  pushed_ = true;
}

OnDevice::~OnDevice() {
  Handle popped = nullptr;
  if (pushed_) driver()->pop_context(&popped);
}

namespace {

// Values of cuda.h.
constexpr int type_u16 = 1, type_u32 = 2, no_interleave = 0, swizzle_128 = 3, promote_256 = 3,
              fill_zeros = 0;

struct alignas(64) Encoded {
  std::array<std::byte, 128> bytes;
};

Encoded encode(const TensorMapSpec& spec) {
  if (!has_tensor_maps()) throw DeviceError("this driver makes no tensor maps");
  Encoded map;
  const std::array<std::uint32_t, 5> steps{1, 1, 1, 1, 1};
  check(driver()->encode_tensor_map(&map, spec.element_bytes == 4 ? type_u32 : type_u16, spec.rank,
                                    const_cast<void*>(spec.data), spec.extents.data(),
                                    spec.stride_bytes.data(), spec.box.data(), steps.data(),
                                    no_interleave, swizzle_128, promote_256, fill_zeros),
        "cuTensorMapEncodeTiled");
  return map;
}

struct Remembered {
  TensorMapSpec spec;
  Encoded map;
};
constexpr std::size_t most_remembered = 64;  // a power of two
thread_local std::array<Remembered, most_remembered> remembered;

std::size_t slot_of(const TensorMapSpec& spec) {
  const auto address = reinterpret_cast<std::uintptr_t>(spec.data);
  const std::uint64_t mixed =
      (address >> 4 ^ spec.extents[1] << 20 ^ spec.box[1] << 3) * 0x9e3779b97f4a7c15u;
  return mixed >> 58;
}

}  // namespace

bool has_tensor_maps() { return driver() != nullptr && driver()->encode_tensor_map != nullptr; }

void write_tensor_map(const TensorMapSpec& spec, void* to) {
  Remembered& slot = remembered[slot_of(spec)];
  if (slot.spec.data == nullptr || !(slot.spec == spec)) slot = {spec, encode(spec)};
  std::memcpy(to, &slot.map, sizeof slot.map);
}

}  // namespace fovea::cuda

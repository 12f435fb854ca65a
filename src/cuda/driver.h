// The CUDA driver, loaded at run time, so that Fovea is built and runs without one; and the GPUs
// that it finds, as devices. The types are those of cuda.h without including it.
#pragma once

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "attention/device.h"

namespace fovea::cuda {

using Result = int;             // CUresult
using Address = std::uint64_t;  // CUdeviceptr
using Handle = void*;           // CUcontext, CUstream, CUmodule, CUfunction

// The calls by their names in libcuda, with their parameters.
#define FOVEA_DRIVER_CALLS(X)                                                                    \
  X(init, "cuInit", unsigned flags)                                                              \
  X(driver_version, "cuDriverGetVersion", int* version)                                          \
  X(error_name, "cuGetErrorName", Result error, const char** name)                               \
  X(device_count, "cuDeviceGetCount", int* count)                                                \
  X(device_get, "cuDeviceGet", int* device, int ordinal)                                         \
  X(device_name, "cuDeviceGetName", char* name, int bytes, int device)                           \
  X(device_attribute, "cuDeviceGetAttribute", int* value, int attribute, int device)             \
  X(device_memory, "cuDeviceTotalMem_v2", std::size_t* bytes, int device)                        \
  X(primary_context, "cuDevicePrimaryCtxRetain", Handle* context, int device)                    \
  X(current_context, "cuCtxGetCurrent", Handle* context)                                         \
  X(push_context, "cuCtxPushCurrent_v2", Handle context)                                         \
  X(pop_context, "cuCtxPopCurrent_v2", Handle* context)                                          \
  X(context_device, "cuCtxGetDevice", int* device)                                               \
  X(is_capturing, "cuStreamIsCapturing", Handle stream, int* status)                             \
  X(allocate, "cuMemAlloc_v2", Address* address, std::size_t bytes)                              \
  X(release, "cuMemFree_v2", Address address)                                                    \
  X(to_device, "cuMemcpyHtoD_v2", Address to, const void* from, std::size_t bytes)               \
  X(to_device_async, "cuMemcpyHtoDAsync_v2", Address to, const void* from, std::size_t bytes,    \
    Handle stream)                                                                               \
  X(set_bytes_async, "cuMemsetD8Async", Address to, unsigned char value, std::size_t count,      \
    Handle stream)                                                                               \
  X(set_words_async, "cuMemsetD32Async", Address to, unsigned value, std::size_t count,          \
    Handle stream)                                                                               \
  X(set_rows_async, "cuMemsetD2D8Async", Address to, std::size_t pitch, unsigned char value,     \
    std::size_t width, std::size_t height, Handle stream)                                        \
  X(load_module, "cuModuleLoadData", Handle* module, const void* image)                          \
  X(find_kernel, "cuModuleGetFunction", Handle* kernel, Handle module, const char* name)         \
  X(set_kernel_attribute, "cuFuncSetAttribute", Handle kernel, int attribute, int value)         \
  X(launch, "cuLaunchKernel", Handle kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z,  \
    unsigned x, unsigned y, unsigned z, unsigned shared_bytes, Handle stream, void** parameters, \
    void** extra)

struct Driver {
#define FOVEA_DRIVER_CALL(field, name, ...) Result (*field)(__VA_ARGS__);
  FOVEA_DRIVER_CALLS(FOVEA_DRIVER_CALL)
#undef FOVEA_DRIVER_CALL
  // Null of drivers before 12.3: the first that capture overlapping launches into graphs.
  Result (*launch_overlapping)(const void* config, Handle kernel, void** parameters, void** extra);
  // Null of drivers before 12.0.
  Result (*encode_tensor_map)(void* map, int type, std::uint32_t rank, void* data,
                              const std::uint64_t* extents, const std::uint64_t* strides,
                              const std::uint32_t* box, const std::uint32_t* steps, int interleave,
                              int swizzle, int promotion, int fill);
  void* library = nullptr;  // of dlopen, for calls by name
};

// False, and null, if the library has no function of that name.
template <class Function>
bool find_function(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

// Loaded and initialised once; null if this machine has no usable driver.
const Driver* driver();
// Why driver() is null, for people; "" if it is not.
const std::string& driver_problem();

// Throws DeviceError that names the call, its code and its name.
void check(Result result, const char* call);

// Whether work on this stream goes into a CUDA graph that is being captured.
bool is_capturing(Handle stream);

// Makes a device's primary context current on this thread for a scope. Calls may come from threads
// that never touched the GPU.
class OnDevice {
 public:
  explicit OnDevice(int ordinal);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  bool pushed_ = false;
};

// A tensor for the tile copies of sm_90 and newer: the driver turns it into a map of 128 bytes.
// Elements have 2 or 4 bytes; the fastest index comes first and must be dense; the address and all
// strides are multiples of 16 bytes. Tiles have rows of at most 128 bytes, swizzled.
struct TensorMapSpec {
  const void* data = nullptr;
  std::uint32_t rank = 4;
  std::uint32_t element_bytes = 2;
  std::array<std::uint64_t, 5> extents{};
  std::array<std::uint64_t, 4> stride_bytes{};  // of index 1 and the following
  std::array<std::uint32_t, 5> box{};           // elements of a tile along each index

  bool operator==(const TensorMapSpec&) const = default;
};

// Writes the map. The last maps of a thread are remembered, since the driver takes a microsecond to
// make one. Throws DeviceError if the driver or the hardware does not support it.
void write_tensor_map(const TensorMapSpec& spec, void* to);

// As fovea::find_device, and `cuda` or `cuda:N`: the GPU of that number. Throws DeviceError with
// what is missing if there is none.
Device find_device(const std::string& name);

int device_count();  // 0 without a driver

}  // namespace fovea::cuda

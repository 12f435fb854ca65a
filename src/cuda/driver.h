// The CUDA driver, loaded at run time: Fovea is built and runs if there is none. Only the calls
// that engines and device facts need; the types are those of cuda.h without including it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace fovea::cuda {

using Result = int;             // CUresult
using Address = std::uint64_t;  // CUdeviceptr
using Handle = void*;           // CUcontext, CUstream, CUmodule, CUfunction

struct Driver {
  Result (*init)(unsigned flags);
  Result (*driver_version)(int* version);
  Result (*error_name)(Result error, const char** name);
  Result (*device_count)(int* count);
  Result (*device_get)(int* device, int ordinal);
  Result (*device_name)(char* name, int bytes, int device);
  Result (*device_attribute)(int* value, int attribute, int device);
  Result (*device_memory)(std::size_t* bytes, int device);
  Result (*primary_context)(Handle* context, int device);
  Result (*current_context)(Handle* context);
  Result (*push_context)(Handle context);
  Result (*pop_context)(Handle* context);
  Result (*context_device)(int* device);
  Result (*is_capturing)(Handle stream, int* status);
  Result (*allocate)(Address* address, std::size_t bytes);
  Result (*release)(Address address);
  Result (*to_device)(Address to, const void* from, std::size_t bytes);
  Result (*to_device_async)(Address to, const void* from, std::size_t bytes, Handle stream);
  Result (*set_bytes_async)(Address to, unsigned char value, std::size_t count, Handle stream);
  Result (*set_words_async)(Address to, unsigned value, std::size_t count, Handle stream);
  Result (*set_rows_async)(Address to, std::size_t pitch, unsigned char value, std::size_t width,
                           std::size_t height, Handle stream);
  Result (*load_module)(Handle* module, const void* image);
  Result (*find_kernel)(Handle* kernel, Handle module, const char* name);
  Result (*set_kernel_attribute)(Handle kernel, int attribute, int value);
  Result (*launch)(Handle kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned x,
                   unsigned y, unsigned z, unsigned shared_bytes, Handle stream, void** parameters,
                   void** extra);
  // Null of drivers before 12.3: the first that capture overlapping launches into graphs.
  Result (*launch_overlapping)(const void* config, Handle kernel, void** parameters, void** extra);
  // Null of drivers before 12.0.
  Result (*encode_tensor_map)(void* map, int type, std::uint32_t rank, void* data,
                              const std::uint64_t* extents, const std::uint64_t* strides,
                              const std::uint32_t* box, const std::uint32_t* steps, int interleave,
                              int swizzle, int promotion, int fill);
  void* library = nullptr;  // of dlopen, for calls by name
};

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

// Whether the driver makes such maps.
bool has_tensor_maps();

// Writes the map. The last maps of a thread are remembered, since the driver takes a microsecond to
// make one. Throws DeviceError for what the hardware does not support.
void write_tensor_map(const TensorMapSpec& spec, void* to);

}  // namespace fovea::cuda

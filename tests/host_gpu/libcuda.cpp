// A libcuda.so.1 whose one GPU is the host: memory is the host's, what is enqueued is done at once,
// and the kernels of packed_rows run as plain loops. Calls of src/cuda only; loaded by this
// folder's test alone, from its own folder. Signatures follow cuda.h 13.0.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "engines/cudnn/packed_rows.h"

#define EXPORT extern "C" __attribute__((visibility("default")))
#define NOTHING(name) \
  EXPORT int name() { return 0; }

namespace {

int anything;  // what handles point to

using Address = std::uint64_t;
template <class T = unsigned char>
T* at(Address address) {
  return reinterpret_cast<T*>(address);
}

struct Grid {
  unsigned x, y, z, threads;
};
using Kernel = void (*)(const void* parameters, const Grid& grid);

using namespace fovea::cudnn;

void packed_tables(const void* parameters, const Grid& grid) {
  const auto& p = *static_cast<const PackedTables*>(parameters);
  const std::int64_t all = std::int64_t{grid.x} * grid.threads;
  for (std::int64_t b = 0; b < all && b <= p.graph_batch; ++b) write_tables(p, b);
}

void packed_clear(const void* parameters, const Grid& grid) {
  const auto& p = *static_cast<const PackedGaps*>(parameters);
  for (unsigned z = 0; z < grid.z; ++z) {
    const Cleared& to = p.tensors[z];
    for (unsigned x = 0; x < grid.x; ++x) {
      const RowsOfNone rows = rows_of_none(to.of_keys != 0 ? p.k : p.q, x, p.batch);
      for (std::int64_t row = rows.first; row < rows.last; ++row) clear_row(to, row, 0, 1);
    }
  }
}

void packed_transpose(const void* parameters, const Grid&) {
  const auto& t = *static_cast<const Transposed*>(parameters);
  for (std::int64_t i = 0; i < t.rows * t.heads; ++i) transpose_one(t, i);
}

struct Named {
  const char* name;
  Kernel kernel;
};
constexpr Named kernels[] = {{"fovea_packed_tables", packed_tables},
                             {"fovea_packed_clear", packed_clear},
                             {"fovea_packed_transpose", packed_transpose}};

}  // namespace

EXPORT int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
EXPORT int cuGetErrorName(int, const char** name) { return *name = "CUDA_ERROR", 0; }
EXPORT int cuDeviceGetCount(int* count) { return *count = 1, 0; }
EXPORT int cuDeviceGet(int* device, int ordinal) { return *device = ordinal, 0; }
EXPORT int cuDeviceGetName(char* name, int bytes, int) {
  std::strncpy(name, "the host", static_cast<std::size_t>(bytes));
  return 0;
}
EXPORT int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75 ? 9 : attribute == 76 ? 0 : 132;  // compute capability 9.0
  return 0;
}
EXPORT int cuDeviceTotalMem_v2(std::size_t* bytes, int) { return *bytes = std::size_t{1} << 36, 0; }
EXPORT int cuDevicePrimaryCtxRetain(void** context, int) { return *context = &anything, 0; }
EXPORT int cuCtxGetCurrent(void** context) { return *context = &anything, 0; }
EXPORT int cuCtxPopCurrent_v2(void** context) { return *context = &anything, 0; }
EXPORT int cuCtxGetDevice(int* device) { return *device = 0, 0; }
EXPORT int cuStreamIsCapturing(void*, int* status) { return *status = 0, 0; }
EXPORT int cuMemAlloc_v2(Address* address, std::size_t bytes) {
  void* const made = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  *address = reinterpret_cast<Address>(made);
  return made == nullptr ? 2 : 0;
}
EXPORT int cuMemFree_v2(Address address) {
  std::free(at(address));
  return 0;
}
EXPORT int cuMemcpyHtoD_v2(Address to, const void* from, std::size_t bytes) {
  std::memcpy(at(to), from, bytes);
  return 0;
}
EXPORT int cuMemcpyHtoDAsync_v2(Address to, const void* from, std::size_t bytes, void*) {
  return cuMemcpyHtoD_v2(to, from, bytes);
}
EXPORT int cuMemsetD8Async(Address to, unsigned char value, std::size_t count, void*) {
  std::memset(at(to), value, count);
  return 0;
}
EXPORT int cuMemsetD32Async(Address to, unsigned value, std::size_t count, void*) {
  for (std::size_t i = 0; i < count; ++i) at<unsigned>(to)[i] = value;
  return 0;
}
EXPORT int cuMemsetD2D8Async(Address to, std::size_t pitch, unsigned char value, std::size_t width,
                             std::size_t height, void*) {
  for (std::size_t row = 0; row < height; ++row) std::memset(at(to) + row * pitch, value, width);
  return 0;
}
EXPORT int cuModuleLoadData(void** module, const void*) { return *module = &anything, 0; }
EXPORT int cuModuleGetFunction(void** function, void*, const char* name) {
  for (const Named& one : kernels) {
    if (std::strcmp(one.name, name) != 0) continue;
    *function = const_cast<Named*>(&one);
    return 0;
  }
  return 500;  // not found
}
EXPORT int cuLaunchKernel(void* kernel, unsigned x, unsigned y, unsigned z, unsigned threads,
                          unsigned, unsigned, unsigned, void*, void** parameters, void**) {
  static_cast<const Named*>(kernel)->kernel(parameters[0], {x, y, z, threads});
  return 0;
}
NOTHING(cuInit)
NOTHING(cuFuncSetAttribute)
NOTHING(cuCtxPushCurrent_v2)

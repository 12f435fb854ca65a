// A libcuda.so.1 whose one GPU is the host: memory is the host's, and what is enqueued is done at
// once. Kernels of engine jit come as shared objects that the host's compiler made
// (tests/jit_host), and run thread by thread; those of packed_rows run as plain loops. It has the
// calls of src/cuda only; tests and benchmarks load it from its own folder. Signatures follow
// cuda.h 13.0. FOVEA_HOST_GPU_SM=80 makes it a GPU of that compute capability,
// FOVEA_HOST_GPU_MULTIPROCESSORS=2 one whose kernels that stay have two blocks (132 otherwise);
// FOVEA_HOST_GPU_IDLE makes it one that enqueues and does nothing, for benchmarks of the host's
// part of a call.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engines/cudnn/packed_rows.h"
#include "tests/jit_host/launch.h"

#define EXPORT extern "C" __attribute__((visibility("default")))
#define NOTHING(name) \
  EXPORT int name() { return 0; }

namespace {

int anything;  // what other handles point to

using Address = std::uint64_t;
template <class T = unsigned char>
T* at(Address address) {
  return reinterpret_cast<T*>(address);
}

constexpr int invalid_value = 1, out_of_memory = 2, invalid_image = 200, not_found = 500,
              launch_failed = 719;

thread_local std::string problem;  // of the call that failed last

int fail(int code, std::string text) {
  problem = std::move(text);
  return code;
}

using Grid = fovea::on_host::Launch;
using PlainLoops = void (*)(const void* parameters, const Grid& grid);

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

struct Kernel {
  std::string name;
  PlainLoops loops = nullptr;
  fovea::on_host::Kernel kernel = nullptr;
  unsigned most_shared = 48u << 10;  // without asking for more
};
Kernel plain_kernels[] = {{"fovea_packed_tables", packed_tables},
                          {"fovea_packed_clear", packed_clear},
                          {"fovea_packed_transpose", packed_transpose}};

// Null of a module of PTX, which is that of packed_rows.
struct LoadedModule {
  std::unique_ptr<fovea::on_host::Module> own;
  std::vector<std::unique_ptr<Kernel>> kernels;
};

const bool idle = std::getenv("FOVEA_HOST_GPU_IDLE") != nullptr;

int number_or(const char* variable, int otherwise) {
  const char* const given = std::getenv(variable);
  return given != nullptr ? std::atoi(given) : otherwise;
}
int compute_capability() { return number_or("FOVEA_HOST_GPU_SM", 90); }
int multiprocessors() { return number_or("FOVEA_HOST_GPU_MULTIPROCESSORS", 132); }

int most_shared_bytes() {
  const int sm = compute_capability();
  const bool small = (sm > 80 && sm < 90) || sm >= 120;  // 8.6, 8.9, 12.0
  return (small ? 99 : sm == 80 || sm == 87 ? 163 : 227) << 10;
}

}  // namespace

EXPORT int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
EXPORT int cuGetErrorName(int, const char** name) {
  return *name = problem.empty() ? "CUDA_ERROR" : problem.c_str(), 0;
}
EXPORT int cuDeviceGetCount(int* count) { return *count = 1, 0; }
EXPORT int cuDeviceGet(int* device, int ordinal) { return *device = ordinal, 0; }
EXPORT int cuDeviceGetName(char* name, int bytes, int) {
  std::strncpy(name, "the host", static_cast<std::size_t>(bytes));
  return 0;
}
EXPORT int cuDeviceGetAttribute(int* value, int attribute, int) {
  switch (attribute) {
    case 1: *value = 1024; break;      // threads of a block
    case 8: *value = 48 << 10; break;  // shared memory of a block
    case 10: *value = 32; break;       // threads of a warp
    case 16: *value = multiprocessors(); break;
    case 75: *value = compute_capability() / 10; break;   // major
    case 76: *value = compute_capability() % 10; break;   // minor
    case 81: *value = most_shared_bytes() + 1024; break;  // of a multiprocessor
    case 97: *value = most_shared_bytes(); break;         // of a block that asks for it
    default: *value = 132; break;
  }
  return 0;
}
EXPORT int cuDeviceTotalMem_v2(std::size_t* bytes, int) { return *bytes = std::size_t{1} << 36, 0; }
EXPORT int cuDevicePrimaryCtxRetain(void** context, int) { return *context = &anything, 0; }
EXPORT int cuCtxGetCurrent(void** context) { return *context = &anything, 0; }
EXPORT int cuCtxPopCurrent_v2(void** context) { return *context = &anything, 0; }
EXPORT int cuCtxGetDevice(int* device) { return *device = 0, 0; }
EXPORT int cuStreamIsCapturing(void*, int* status) { return *status = 0, 0; }
EXPORT int cuMemAlloc_v2(Address* address, std::size_t bytes) {
  void* made = nullptr;
  if (posix_memalign(&made, 256, bytes) != 0) return fail(out_of_memory, "no memory");
  std::memset(made, 0xff, bytes);  // NaN, should anyone read it before it is written
  *address = reinterpret_cast<Address>(made);
  return 0;
}
EXPORT int cuMemFree_v2(Address address) {
  std::free(at(address));
  return 0;
}
EXPORT int cuMemcpyHtoD_v2(Address to, const void* from, std::size_t bytes) {
  std::memcpy(at(to), from, bytes);
  return 0;
}
EXPORT int cuMemcpyDtoH_v2(void* to, Address from, std::size_t bytes) {
  std::memcpy(to, at(from), bytes);
  return 0;
}
EXPORT int cuMemcpyHtoDAsync_v2(Address to, const void* from, std::size_t bytes, void*) {
  return idle ? 0 : cuMemcpyHtoD_v2(to, from, bytes);
}
EXPORT int cuMemsetD8Async(Address to, unsigned char value, std::size_t count, void*) {
  if (!idle) std::memset(at(to), value, count);
  return 0;
}
EXPORT int cuMemsetD32Async(Address to, unsigned value, std::size_t count, void*) {
  for (std::size_t i = 0; i < count && !idle; ++i) at<unsigned>(to)[i] = value;
  return 0;
}
EXPORT int cuMemsetD2D8Async(Address to, std::size_t pitch, unsigned char value, std::size_t width,
                             std::size_t height, void*) {
  for (std::size_t row = 0; row < height && !idle; ++row)
    std::memset(at(to) + row * pitch, value, width);
  return 0;
}
EXPORT int cuModuleLoadData(void** module, const void* image) try {
  auto loaded = std::make_unique<LoadedModule>();
  if (const std::size_t bytes = fovea::on_host::image_bytes(image)) {
    loaded->own = std::make_unique<fovea::on_host::Module>(
        std::string_view(static_cast<const char*>(image), bytes));
  }
  *module = loaded.release();
  return 0;
} catch (const std::exception& error) {
  return fail(invalid_image, error.what());
}
EXPORT int cuModuleUnload(void* module) {  // its code stays
  delete static_cast<LoadedModule*>(module);
  return 0;
}
EXPORT int cuModuleGetFunction(void** function, void* module, const char* name) {
  auto& loaded = *static_cast<LoadedModule*>(module);
  if (loaded.own != nullptr) {
    const fovea::on_host::Kernel kernel = loaded.own->find(name);
    if (kernel == nullptr) return fail(not_found, std::string("no kernel ") + name);
    loaded.kernels.push_back(std::make_unique<Kernel>(Kernel{name, nullptr, kernel}));
    *function = loaded.kernels.back().get();
    return 0;
  }
  for (Kernel& one : plain_kernels) {
    if (one.name != name) continue;
    *function = &one;
    return 0;
  }
  return fail(not_found, std::string("no kernel ") + name);
}
EXPORT int cuFuncSetAttribute(void* function, int attribute, int value) {
  constexpr int most_dynamic_shared = 8;
  if (attribute != most_dynamic_shared) return 0;
  if (value < 0 || value > most_shared_bytes()) {
    return fail(invalid_value, std::to_string(value) + " bytes of shared memory");
  }
  static_cast<Kernel*>(function)->most_shared = static_cast<unsigned>(value);
  return 0;
}
EXPORT int cuFuncGetAttribute(int* value, int attribute, void*) {
  switch (attribute) {
    case 0: *value = 1024; break;  // threads of a block
    case 4: *value = 128; break;   // registers
    default: *value = 0; break;
  }
  return 0;
}
EXPORT int cuLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads,
                          unsigned, unsigned, unsigned shared_bytes, void*, void** parameters,
                          void**) {
  if (idle) return 0;
  const Kernel& kernel = *static_cast<const Kernel*>(function);
  const Grid grid{x, y, z, threads, shared_bytes};
  if (x == 0 || y == 0 || z == 0 || y > 65535 || z > 65535) {
    return fail(invalid_value, "a grid of " + std::to_string(x) + " x " + std::to_string(y) +
                                   " x " + std::to_string(z) + " blocks");
  }
  if (shared_bytes > kernel.most_shared) {
    return fail(invalid_value, kernel.name + " with " + std::to_string(shared_bytes) +
                                   " bytes of shared memory, of which it may have " +
                                   std::to_string(kernel.most_shared));
  }
  if (kernel.loops != nullptr) return kernel.loops(parameters[0], grid), 0;
  const std::string mistake = fovea::on_host::launch(kernel.kernel, parameters, grid);
  return mistake.empty() ? 0 : fail(launch_failed, kernel.name + ", " + mistake);
}
// As CUlaunchConfig lies. A kernel that may overlap with those before it runs behind them here.
struct LaunchConfig {
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
  const void* attributes;
  unsigned count;
};
EXPORT int cuLaunchKernelEx(const LaunchConfig* config, void* function, void** parameters,
                            void** extra) {
  int overlap[3];  // the attribute's number, a gap, its value
  if (config->count != 1) return fail(invalid_value, "a launch without its attribute");
  std::memcpy(overlap, config->attributes, sizeof overlap);
  if (overlap[0] != 6 || overlap[2] != 1) return fail(invalid_value, "an unknown attribute");
  const auto& [grid, block, shared_bytes, stream, attributes, count] = *config;
  return cuLaunchKernel(function, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                        shared_bytes, stream, parameters, extra);
}
// What cuda.h demands of a map of 16-bit or 32-bit elements, and no more than the kernels use.
EXPORT int cuTensorMapEncodeTiled(void* map, int type, unsigned rank, void* data,
                                  const std::uint64_t* extents, const std::uint64_t* strides,
                                  const std::uint32_t* box, const std::uint32_t* steps,
                                  int interleave, int swizzle, int, int fill) {
  fovea::on_host::TensorMapWords words{};
  words.data = reinterpret_cast<std::uint64_t>(data);
  words.rank = rank;
  words.element_bytes = type == 1 ? 2 : type == 2 ? 4 : 0;
  words.swizzle = static_cast<unsigned>(swizzle);
  words.mark = fovea::on_host::map_mark;
  bool right = words.element_bytes != 0 && rank >= 2 && rank <= 5 && words.data % 16 == 0 &&
               interleave == 0 && fill == 0 && (swizzle == 0 || swizzle == 3);
  for (unsigned i = 0; right && i < rank; ++i) {
    right = extents[i] > 0 && extents[i] <= std::uint64_t{1} << 32 && box[i] > 0 && box[i] <= 256 &&
            steps[i] == 1;
    words.extent[i] = static_cast<std::uint32_t>(extents[i]);
    words.box[i] = box[i];
    if (i + 1 == rank) break;
    right = right && strides[i] % 16 == 0 && strides[i] < std::uint64_t{1} << 40;
    words.stride_bytes[i] = strides[i];
  }
  const std::uint32_t inner = right ? box[0] * words.element_bytes : 0;
  right = right && inner % 16 == 0 && (swizzle == 0 || inner <= 128);
  if (!right) return fail(invalid_value, "a tensor map that the hardware does not take");
  std::memcpy(map, &words, sizeof words);
  return 0;
}
NOTHING(cuInit)
NOTHING(cuStreamSynchronize)
NOTHING(cuCtxSynchronize)
NOTHING(cuCtxPushCurrent_v2)
NOTHING(cuCtxSetCurrent)

/* A libcuda.so.1 of one GPU on which nothing happens, for benchmarks of the host: every call that
 * src/cuda looks up succeeds at once. Loaded by bench/capi/cudnn_calls.cpp alone, from its own
 * folder. Signatures follow cuda.h 13.0. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define NOTHING(name) \
  EXPORT int name(void) { return 0; }

static int anything; /* what every handle points to */

EXPORT int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
EXPORT int cuGetErrorName(int error, const char** name) {
  return *name = "CUDA_SUCCESS", error * 0;
}
EXPORT int cuDeviceGetCount(int* count) { return *count = 1, 0; }
EXPORT int cuDeviceGet(int* device, int ordinal) { return *device = ordinal, 0; }
EXPORT int cuDeviceGetName(char* name, int bytes, int device) {
  strncpy(name, "a GPU that does nothing", (size_t)bytes);
  return device * 0;
}
EXPORT int cuDeviceGetAttribute(int* value, int attribute, int device) {
  *value = attribute == 75 ? 9 : attribute == 76 ? 0 : 132; /* compute capability 9.0 */
  return device * 0;
}
EXPORT int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  *bytes = (size_t)1 << 36;
  return device * 0;
}
EXPORT int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = &anything;
  return device * 0;
}
EXPORT int cuCtxGetCurrent(void** context) { return *context = &anything, 0; }
EXPORT int cuCtxPopCurrent_v2(void** context) { return *context = &anything, 0; }
EXPORT int cuCtxGetDevice(int* device) { return *device = 0, 0; }
EXPORT int cuStreamIsCapturing(void* stream, int* status) {
  (void)stream;
  return *status = 0, 0;
}
EXPORT int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  (void)bytes;
  return *address = (uint64_t)1 << 40, 0;
}
EXPORT int cuModuleLoadData(void** module, const void* image) {
  (void)image;
  return *module = &anything, 0;
}
EXPORT int cuModuleGetFunction(void** function, void* module, const char* name) {
  (void)module, (void)name;
  return *function = &anything, 0;
}
NOTHING(cuInit)
NOTHING(cuFuncSetAttribute)
NOTHING(cuCtxPushCurrent_v2)
NOTHING(cuMemFree_v2)
NOTHING(cuMemcpyHtoD_v2)
NOTHING(cuMemcpyHtoDAsync_v2)
NOTHING(cuMemsetD8Async)
NOTHING(cuMemsetD32Async)
NOTHING(cuMemsetD2D8Async)
NOTHING(cuLaunchKernel)

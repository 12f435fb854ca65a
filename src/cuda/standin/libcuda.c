/* A libcuda.so.1 for machines without a driver, so that cuDNN can compile plans for a GPU that is
 * described: its compilers ask for a driver to exist, and load what they have compiled. Nothing can
 * run here: there are no devices, loading a kernel succeeds and does nothing, everything else gives
 * CUDA_ERROR_NO_DEVICE. Loaded by src/cuda/libraries alone, from its own folder, and only if
 * there is no real driver. Signatures follow cuda.h 13.0.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))
enum { SUCCESS = 0, NO_DEVICE = 100, DRIVER_VERSION = 13000 };

static int anything; /* what every handle points to */

static int no_device(void) { return NO_DEVICE; }

EXPORT int cuInit(unsigned flags) {
  (void)flags;
  return SUCCESS;
}

EXPORT int cuDriverGetVersion(int* version) {
  *version = DRIVER_VERSION;
  return SUCCESS;
}

EXPORT int cuDeviceGetCount(int* count) {
  *count = 0;
  return SUCCESS;
}

static int name_no_device(const char** text) {
  *text = "CUDA_ERROR_NO_DEVICE";
  return SUCCESS;
}
EXPORT int cuGetErrorName(int error, const char** text) {
  (void)error;
  return name_no_device(text);
}
EXPORT int cuGetErrorString(int error, const char** text) {
  (void)error;
  return name_no_device(text);
}

/* Loading what was compiled: cuDNN does it once to see that it can. */
EXPORT int cuLibraryLoadData(void** library, const void* code, void* jit_options, void* jit_values,
                             unsigned jit_count, void* options, void* values, unsigned count) {
  (void)code, (void)jit_options, (void)jit_values, (void)jit_count;
  (void)options, (void)values, (void)count;
  *library = &anything;
  return SUCCESS;
}
EXPORT int cuLibraryUnload(void* library) {
  (void)library;
  return SUCCESS;
}
EXPORT int cuLibraryGetKernel(void** kernel, void* library, const char* name) {
  (void)library, (void)name;
  *kernel = &anything;
  return SUCCESS;
}
EXPORT int cuKernelGetFunction(void** function, void* kernel) {
  (void)kernel;
  *function = &anything;
  return SUCCESS;
}
EXPORT int cuModuleLoadData(void** module, const void* image) {
  (void)image;
  *module = &anything;
  return SUCCESS;
}
EXPORT int cuModuleUnload(void* module) {
  (void)module;
  return SUCCESS;
}
EXPORT int cuModuleGetFunction(void** function, void* module, const char* name) {
  (void)module, (void)name;
  *function = &anything;
  return SUCCESS;
}
EXPORT int cuKernelSetAttribute(int attribute, int value, void* kernel, int device) {
  (void)attribute, (void)value, (void)kernel, (void)device;
  return SUCCESS;
}
EXPORT int cuKernelGetAttribute(int* value, int attribute, void* kernel, int device) {
  (void)attribute, (void)kernel, (void)device;
  *value = 0;
  return SUCCESS;
}
EXPORT int cuFuncSetAttribute(void* function, int attribute, int value) {
  (void)function, (void)attribute, (void)value;
  return SUCCESS;
}
EXPORT int cuFuncGetAttribute(int* value, int attribute, void* function) {
  (void)attribute, (void)function;
  *value = 0;
  return SUCCESS;
}

/* Looked up by name, and then called or not: cuDNN's runtime-compiled engines and NVRTC refuse to
 * work, or crash, if one of these is missing. */
#define ABSENT(name) \
  EXPORT int name(void) { return no_device(); }
ABSENT(cuCtxGetCurrent)
ABSENT(cuCtxGetLimit)
ABSENT(cuCtxPopCurrent)
ABSENT(cuCtxPushCurrent)
ABSENT(cuDeviceGet)
ABSENT(cuGetExportTable)
ABSENT(cuLaunchCooperativeKernel)
ABSENT(cuLaunchKernel)
ABSENT(cuLaunchKernelEx)
ABSENT(cuLibraryLoadFromFile)
ABSENT(cuLinkAddData)
ABSENT(cuLinkComplete)
ABSENT(cuLinkCreate)
ABSENT(cuLinkDestroy)
ABSENT(cuOccupancyMaxPotentialClusterSize)
ABSENT(cuStreamGetCtx)

/* The runtime inside cuDNN gets every call of the driver through here. */
EXPORT int cuGetProcAddress_v2(const char* symbol, void** address, int version,
                               unsigned long long flags, int* status) {
  (void)version, (void)flags;
  Dl_info here;
  void* self = NULL;
  if (dladdr((void*)&cuInit, &here) != 0) {
    self = dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }
  void* const found = self != NULL ? dlsym(self, symbol) : NULL;
  if (self != NULL) dlclose(self);
  *address = found != NULL ? found : (void*)&no_device;
  if (status != NULL) *status = 0;
  return SUCCESS;
}
EXPORT int cuGetProcAddress(const char* symbol, void** address, int version,
                            unsigned long long flags) {
  return cuGetProcAddress_v2(symbol, address, version, flags, NULL);
}

// The calls of cuDNN, the CUDA runtime and NVRTC that cudnn-frontend's headers make, forwarded to
// the libraries that src/cuda found. So the library links to none of them, loads all parts from one
// installation, and needs no libcudart: the driver does the little that the frontend asks of it.
// These names stay inside libfovea.so (see cmake/fovea.map).
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <dlfcn.h>
#include <nvrtc.h>

#include "base/error.h"
#include "cuda/driver.h"
#include "cuda/libraries.h"

namespace {

using fovea::cuda::driver;

template <class F>
F* cudnn_function(const char* name) {
  void* const found = dlsym(fovea::cuda::cudnn_library().library, name);
  if (found == nullptr) throw fovea::DeviceError(std::string("cuDNN has no function ") + name);
  return reinterpret_cast<F*>(found);
}

// Handles of the runtime are those of the driver, and so are the numbers of errors.
template <class F>
F* driver_function(const char* name) {
  void* const found = driver() != nullptr ? dlsym(driver()->library, name) : nullptr;
  if (found == nullptr) throw fovea::DeviceError(std::string("the CUDA driver has no ") + name);
  return reinterpret_cast<F*>(found);
}

cudaError_t runtime(fovea::cuda::Result result) { return static_cast<cudaError_t>(result); }

}  // namespace

#define FORWARD(name, ...)                                             \
  static auto* const function = cudnn_function<decltype(name)>(#name); \
  return function(__VA_ARGS__)

#define TO_DRIVER(symbol, runtime_name, ...)                                      \
  static auto* const function = driver_function<decltype(runtime_name)>(#symbol); \
  return function(__VA_ARGS__)

extern "C" {

std::size_t cudnnGetVersion(void) { FORWARD(cudnnGetVersion); }
const char* cudnnGetErrorString(cudnnStatus_t status) { FORWARD(cudnnGetErrorString, status); }
void cudnnGetLastErrorString(char* message, std::size_t size) {
  FORWARD(cudnnGetLastErrorString, message, size);
}
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) { FORWARD(cudnnCreate, handle); }
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  FORWARD(cudnnSetStream, handle, stream);
}
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  FORWARD(cudnnGetStream, handle, stream);
}
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  FORWARD(cudnnBackendCreateDescriptor, type, descriptor);
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  FORWARD(cudnnBackendDestroyDescriptor, descriptor);
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  FORWARD(cudnnBackendFinalize, descriptor);
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
  FORWARD(cudnnBackendExecute, handle, plan, pack);
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t count,
                                       const void* values) {
  FORWARD(cudnnBackendSetAttribute, descriptor, name, type, count, values);
}
cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t wanted,
                                       std::int64_t* count, void* values) {
  FORWARD(cudnnBackendGetAttribute, descriptor, name, type, wanted, count, values);
}

// What execute() asks for.
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  return runtime(driver()->set_bytes_async(reinterpret_cast<fovea::cuda::Address>(to),
                                           static_cast<unsigned char>(value), bytes, stream));
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (kind != cudaMemcpyHostToDevice) return cudaErrorNotSupported;
  return runtime(
      driver()->to_device_async(reinterpret_cast<fovea::cuda::Address>(to), from, bytes, stream));
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* status) {
  *function = driver() != nullptr ? dlsym(driver()->library, symbol) : nullptr;
  const bool found = *function != nullptr;
  if (status != nullptr) {
    *status = found ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  }
  return found ? cudaSuccess : cudaErrorNotSupported;
}
cudaError_t cudaGetDevice(int* device) {
  if (driver() == nullptr) return cudaErrorNoDevice;
  return runtime(driver()->context_device(device));
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (driver() == nullptr) return cudaErrorNoDevice;
  return runtime(driver()->device_attribute(value, static_cast<int>(attribute), device));
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  int capturing = 0;
  const cudaError_t error = runtime(driver()->is_capturing(stream, &capturing));
  *status = static_cast<cudaStreamCaptureStatus>(capturing);
  return error;
}

// A CUDA graph that is captured keeps what its kernels need alive.
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, std::size_t* count) {
  TO_DRIVER(cuStreamGetCaptureInfo_v3, cudaStreamGetCaptureInfo, stream, status, id, graph,
            dependencies, edges, count);
}
cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* data, cudaHostFn_t destroy,
                                 unsigned count, unsigned flags) {
  TO_DRIVER(cuUserObjectCreate, cudaUserObjectCreate, object, data, destroy, count, flags);
}
cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned count) {
  TO_DRIVER(cuUserObjectRelease, cudaUserObjectRelease, object, count);
}
cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count,
                                      unsigned flags) {
  TO_DRIVER(cuGraphRetainUserObject, cudaGraphRetainUserObject, graph, object, count, flags);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  TO_DRIVER(cuThreadExchangeStreamCaptureMode, cudaThreadExchangeStreamCaptureMode, mode);
}

const char* cudaGetErrorString(cudaError_t) { return "an error of the CUDA driver"; }
cudaError_t cudaGetLastError(void) { return cudaSuccess; }

// Autotuning, warm-up, recording into CUDA graphs of the frontend's own, and engines that are not
// attention: never used here.
#define UNUSED_RUNTIME(name, parameters) \
  cudaError_t name parameters { return cudaErrorNotSupported; }
UNUSED_RUNTIME(cudaDeviceSynchronize, (void))
UNUSED_RUNTIME(cudaEventCreate, (cudaEvent_t*))
UNUSED_RUNTIME(cudaEventDestroy, (cudaEvent_t))
UNUSED_RUNTIME(cudaEventElapsedTime, (float*, cudaEvent_t, cudaEvent_t))
UNUSED_RUNTIME(cudaEventRecord, (cudaEvent_t, cudaStream_t))
UNUSED_RUNTIME(cudaEventSynchronize, (cudaEvent_t))
UNUSED_RUNTIME(cudaFree, (void*))
UNUSED_RUNTIME(cudaGraphDestroy, (cudaGraph_t))
UNUSED_RUNTIME(cudaKernelSetAttributeForDevice, (cudaKernel_t, cudaFuncAttribute, int, int))
UNUSED_RUNTIME(cudaLaunchKernel, (const void*, dim3, dim3, void**, std::size_t, cudaStream_t))
UNUSED_RUNTIME(cudaLibraryGetKernel, (cudaKernel_t*, cudaLibrary_t, const char*))
UNUSED_RUNTIME(cudaLibraryLoadData, (cudaLibrary_t*, const void*, cudaJitOption*, void**, unsigned,
                                     cudaLibraryOption*, void**, unsigned))
UNUSED_RUNTIME(cudaLibraryUnload, (cudaLibrary_t))
UNUSED_RUNTIME(cudaMalloc, (void**, std::size_t))
UNUSED_RUNTIME(cudaPointerGetAttributes, (cudaPointerAttributes*, const void*))
UNUSED_RUNTIME(cudaStreamBeginCapture, (cudaStream_t, cudaStreamCaptureMode))
UNUSED_RUNTIME(cudaStreamCreate, (cudaStream_t*))
UNUSED_RUNTIME(cudaStreamDestroy, (cudaStream_t))
UNUSED_RUNTIME(cudaStreamEndCapture, (cudaStream_t, cudaGraph_t*))
UNUSED_RUNTIME(cudaStreamSynchronize, (cudaStream_t))

#define UNUSED_NVRTC(name, parameters) \
  nvrtcResult name parameters { return NVRTC_ERROR_INTERNAL_ERROR; }
UNUSED_NVRTC(nvrtcCompileProgram, (nvrtcProgram, int, const char* const*))
UNUSED_NVRTC(nvrtcCreateProgram,
             (nvrtcProgram*, const char*, const char*, int, const char* const*, const char* const*))
UNUSED_NVRTC(nvrtcDestroyProgram, (nvrtcProgram*))
UNUSED_NVRTC(nvrtcGetCUBIN, (nvrtcProgram, char*))
UNUSED_NVRTC(nvrtcGetCUBINSize, (nvrtcProgram, std::size_t*))
UNUSED_NVRTC(nvrtcGetProgramLog, (nvrtcProgram, char*))
UNUSED_NVRTC(nvrtcGetProgramLogSize, (nvrtcProgram, std::size_t*))

}  // extern "C"

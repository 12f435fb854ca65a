#include "julia_memory.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long DevicePointer;

/* The functions of the driver, under the names that its header gives them by macro. */
static struct {
  int (*init)(unsigned);
  int (*count)(int*);
  int (*retain)(void**, int);
  int (*set_current)(void*);
  int (*allocate)(DevicePointer*, size_t);
  int (*release)(DevicePointer);
  int (*upload)(DevicePointer, const void*, size_t);
  int (*download)(void*, DevicePointer, size_t);
  int (*new_stream)(void**, unsigned);
  int (*synchronize)(void*);
  void* stream;
} cuda;

static void must(int status, const char* call) {
  if (status == 0) return;
  printf("%s failed with CUDA error %d\n", call, status);
  exit(1);
}

static int find(void* library, const char* name, void* function) {
  void* address = dlsym(library, name);
  memcpy(function, &address, sizeof address); /* ISO C has no cast to a function */
  return address != NULL;
}

const char* open_gpu(void) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  void* context = NULL;
  int devices = 0;
  if (library == NULL) return "libcuda.so.1, the CUDA driver, is not here";
  if (!find(library, "cuInit", &cuda.init) || !find(library, "cuDeviceGetCount", &cuda.count) ||
      !find(library, "cuDevicePrimaryCtxRetain", &cuda.retain) ||
      !find(library, "cuCtxSetCurrent", &cuda.set_current) ||
      !find(library, "cuMemAlloc_v2", &cuda.allocate) ||
      !find(library, "cuMemFree_v2", &cuda.release) ||
      !find(library, "cuMemcpyHtoD_v2", &cuda.upload) ||
      !find(library, "cuMemcpyDtoH_v2", &cuda.download) ||
      !find(library, "cuStreamCreate", &cuda.new_stream) ||
      !find(library, "cuStreamSynchronize", &cuda.synchronize)) {
    return "libcuda.so.1 lacks a function";
  }
  if (cuda.init(0) != 0 || cuda.count(&devices) != 0 || devices == 0)
    return "the CUDA driver finds none";
  must(cuda.retain(&context, 0), "cuDevicePrimaryCtxRetain");
  must(cuda.set_current(context), "cuCtxSetCurrent");
  must(cuda.new_stream(&cuda.stream, 1), "cuStreamCreate"); /* 1: non-blocking */
  return NULL;
}

void to_device(Buffer* buffer) {
  DevicePointer address = 0;
  if (buffer->device == NULL) {
    must(cuda.allocate(&address, buffer->count * buffer->size + 64), "cuMemAlloc");
    buffer->device = (void*)(uintptr_t)address;
  }
  must(cuda.upload((uintptr_t)buffer->device, buffer->host, buffer->count * buffer->size),
       "cuMemcpyHtoD");
}

void to_host(Buffer* buffer) {
  must(cuda.download(buffer->host, (uintptr_t)buffer->device, buffer->count * buffer->size),
       "cuMemcpyDtoH");
}

void* julia_stream(void) { return cuda.stream; }
void wait_for_stream(void) { must(cuda.synchronize(cuda.stream), "cuStreamSynchronize"); }

Buffer zero_buffer(size_t count, size_t size) {
  Buffer buffer = {calloc(count + 1, size), NULL, count, size};
  if (buffer.host == NULL) exit(1);
  return buffer;
}

void free_buffer(Buffer* buffer) {
  free(buffer->host);
  if (buffer->device != NULL) must(cuda.release((uintptr_t)buffer->device), "cuMemFree");
  memset(buffer, 0, sizeof *buffer);
}

void* aligned(void* address) { return (void*)(((uintptr_t)address + 63) & ~(uintptr_t)63); }

/* Uniform in -1.7 ... 1.7, of variance 1. */
static float next(uint32_t* state) {
  *state = *state * 1664525u + 1013904223u;
  return ((float)(*state >> 8) / 8388608.0f - 1.0f) * 1.7f;
}

static uint16_t to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static double value(const Buffer* buffer, size_t i) {
  float x;
  if (buffer->size == 4) {
    memcpy(&x, (const char*)buffer->host + 4 * i, 4);
    return x;
  }
  const uint32_t bits = (uint32_t)((const uint16_t*)buffer->host)[i] << 16;
  memcpy(&x, &bits, 4);
  return x;
}

Buffer random_bf16(size_t count, uint32_t seed) {
  Buffer buffer = zero_buffer(count, 2);
  for (size_t i = 0; i < count; ++i) ((uint16_t*)buffer.host)[i] = to_bf16(next(&seed));
  return buffer;
}

Buffer random_f32(size_t count, uint32_t seed, float scale) {
  Buffer buffer = zero_buffer(count, 4);
  for (size_t i = 0; i < count; ++i) ((float*)buffer.host)[i] = scale * next(&seed);
  return buffer;
}

double relative_error(const Buffer* got, const Buffer* want) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < want->count; ++i) {
    const double a = value(got, i), b = value(want, i);
    if (a == b) {
      norm += isfinite(b) ? b * b : 0;
      continue;
    }
    if (!isfinite(a) || !isfinite(b)) return INFINITY;
    difference += (a - b) * (a - b);
    norm += b * b;
  }
  return norm == 0 ? sqrt(difference) : sqrt(difference / norm);
}
